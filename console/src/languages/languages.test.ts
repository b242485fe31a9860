/// <reference types="vite/client" />
import ts from "typescript";
import { describe, expect, test } from "vitest";
import { languageOf, t } from "../language";
import de from "./de";
import ja from "./ja";
import zh from "./zh";

/** Every source of the console, by its path. */
const sources = Object.entries(import.meta.glob<string>(["../**/*.{ts,tsx}", "!../**/*.test.ts", "!../**/*.d.ts", "!./*"], { query: "?raw", import: "default", eager: true }));

const places = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort();

describe.each(Object.entries({ de, ja, zh }))("%s", (_, words) => {
  test("has a text for every message, and no other", () => {
    expect(Object.keys(words).sort()).toEqual(Object.keys(de).sort());
    expect(Object.entries(words).filter(([, text]) => !text.trim())).toEqual([]);
  });
  test("has the places of each message, and no key is shown in place of a value", () => {
    const wrong = Object.entries(words).filter(([message, text]) => places(message).join() !== places(text).join());
    expect(wrong).toEqual([]);
  });
});

/** The messages that are asked for. */
function asked(): Set<string> {
  const found = new Set<string>();
  for (const [path, text] of sources) {
    walk(read(path, text), (node) => {
      if (!isTranslation(node)) return;
      const [message] = node.arguments;
      if (message && ts.isStringLiteral(message)) found.add(message.text);
    });
  }
  return found;
}

test("every message is asked for somewhere", () => {
  const all = asked();
  expect(Object.keys(de).filter((message) => !all.has(message))).toEqual([]);
});

test("the browser's first language that there is, unless another was chosen", () => {
  expect(languageOf(null, ["fr-CH", "de-CH", "en"])).toBe("de");
  expect(languageOf(null, ["zh-Hans-CN"])).toBe("zh");
  expect(languageOf(null, ["fr"])).toBe("en");
  expect(languageOf("ja", ["de"])).toBe("ja");
  expect(languageOf("toString", ["de"])).toBe("de");
});

test("values come to their places", () => {
  expect(t("{ready} of {total} ready", { ready: 1, total: "<b>" })).toBe("1 of <b> ready");
});

/** Attributes that people read. */
const READ = ["title", "aria-label", "placeholder", "label", "empty", "note", "hint", "text"];
/** Names, words of Kubernetes and of protocols, units and examples: the same in every language. */
const SAME =
  /^(Fairlead|kubectl|Kubeconfig|YAML|CPU|MTU|NAME|key|value|label|init|Ctrl( K)?|Enter|ms|[KMGTP]i?B|Pods?|Nodes?|Namespaces?|Taints|Ingress(es)?|Egress|Services|Secrets|ConfigMaps|Deployments|StatefulSets|DaemonSets|Jobs|CronJobs|NetworkPolicies|Webhook|URL|Syslog|Slack|Teams|Alertmanager|apiVersion: v1 kind: Config clusters:|250m, 1\.5, 256Mi|tcp\/80, udp\/8000-8010|http, redis)$/;

function read(path: string, text: string): ts.SourceFile {
  return ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true, path.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS);
}

function walk(node: ts.Node, look: (node: ts.Node) => void): void {
  look(node);
  ts.forEachChild(node, (child) => walk(child, look));
}

function isTranslation(node: ts.Node): node is ts.CallExpression {
  return ts.isCallExpression(node) && ["t", "rich"].includes(node.expression.getText());
}

/** The texts that an expression may come to, as far as they are written in it. */
function texts(node: ts.Node): string[] {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return [node.text];
  if (ts.isTemplateExpression(node)) return [[node.head.text, ...node.templateSpans.map(({ literal }) => literal.text)].join(" ")];
  if (ts.isConditionalExpression(node)) return [...texts(node.whenTrue), ...texts(node.whenFalse)];
  if (ts.isBinaryExpression(node)) return [...(node.operatorToken.kind === ts.SyntaxKind.AmpersandAmpersandToken ? [] : texts(node.left)), ...texts(node.right)].filter(() => !/=/.test(node.operatorToken.getText()));
  if (ts.isParenthesizedExpression(node)) return texts(node.expression);
  return [];
}

/** Words in JSX that no language has: `file:line text`. */
function untranslated(path: string, source: string): string[] {
  const file = read(path, source);
  const found: string[] = [];
  const tell = (node: ts.Node, text: string) => {
    const words = text.replace(/[^\p{L}\p{N} .,:;/'%-]+/gu, " ").trim();
    const plain = /\p{L}{2}/u.test(words) && !words.split(/ +/).every((word) => SAME.test(word)) && !SAME.test(words);
    if (plain) found.push(`${path}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1} ${words}`);
  };
  walk(file, (node) => {
    if (ts.isJsxText(node)) {
      // Commands and keys are what is typed.
      const element = ts.isJsxElement(node.parent) ? node.parent.openingElement.tagName.getText() : "";
      if (!["code", "kbd"].includes(element)) tell(node, node.text);
    } else if (ts.isJsxExpression(node) && node.expression) {
      const attribute = ts.isJsxAttribute(node.parent) ? node.parent.name.getText() : null;
      const element = ts.isJsxElement(node.parent) ? node.parent.openingElement.tagName.getText() : "";
      if (attribute === null ? !["code", "kbd"].includes(element) : READ.includes(attribute)) texts(node.expression).forEach((text) => tell(node, text));
    } else if (ts.isJsxAttribute(node) && node.initializer && ts.isStringLiteral(node.initializer) && READ.includes(node.name.getText())) {
      tell(node, node.initializer.text);
    } else if (ts.isPropertyAssignment(node) && ["title", "does"].includes(node.name.getText())) {
      texts(node.initializer).forEach((text) => tell(node, text));
    }
  });
  return found;
}

describe("words that no language has", () => {
  test("are not in the sources", () => {
    expect(sources.length).toBeGreaterThan(100);
    expect(sources.flatMap(([path, text]) => untranslated(path, text))).toEqual([]);
  });
  test.each([
    ["<p>Delete it</p>", "planted.tsx:1 Delete it"],
    ['<input placeholder="Find a pod" />', "planted.tsx:1 Find a pod"],
    ['<p>{sure ? "Really" : t("No")}</p>', "planted.tsx:1 Really"],
    ["<a title={`Open ${name}`} />", "planted.tsx:1 Open"],
    ['const column = { id: "age", title: "How old" };', "planted.tsx:1 How old"],
  ])("are found in %s", (source, says) => {
    expect(untranslated("planted.tsx", source)).toEqual([says]);
  });
  test.each(["<p>{t('Delete')}</p>", "<code>fairlead up</code>", "<h2>Pods</h2>", '<a class="button quiet" />', "<p>{state === 'gone' && t('gone')}</p>"])("are not found in %s", (source) => {
    expect(untranslated("planted.tsx", source)).toEqual([]);
  });
});
