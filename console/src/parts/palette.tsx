/** ⌘K: goes to a page, a kind, a cluster or an object by its name. `:` lists kinds alone. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { api } from "../api/client";
import { isAbort } from "../api/problem";
import type { Found, Kind } from "../api/schema";
import { clusters, clusterTone, findKind, kindPath, kindsOf, resolve } from "../fleet";
import { kinds as navKinds, pageLinks, selection } from "../nav";
import { explore, object } from "../places";
import { navigate } from "../router";
import { saved } from "../saved";
import { Dialog } from "./dialog";
import { score } from "./score";

type Mode = "all" | "kinds";

const open = signal<Mode | null>(null);

export function openPalette(mode: Mode = "all"): void {
  open.value = mode;
}

export function Palette() {
  return open.value && <Open mode={open.value} />;
}

interface Choice {
  id: string;
  kind: string;
  text: string;
  note?: string | undefined;
  tone?: string;
  href: string;
}

/** The kinds of the first chosen cluster that answers, also if it is known to answer only later. */
function useKinds(): Kind[] {
  const [kinds, setKinds] = useState<Kind[]>([]);
  const answers = (name: string) => clusters.value.some((one) => one.name === name && ["ready", "degraded"].includes(one.state));
  const first = resolve(selection()).find(answers);
  useEffect(() => {
    let gone = false;
    if (first) void kindsOf(first).then((found) => !gone && setKinds(found), () => {});
    return () => {
      gone = true;
    };
  }, [first]);
  return kinds;
}

function Open({ mode }: { mode: Mode }) {
  const [text, setText] = useState(mode === "kinds" ? ":" : "");
  const [at, setAt] = useState(0);
  const [found, setFound] = useState<{ text: string; hits: Choice[]; note: string } | null>(null);
  const served = useKinds();
  const list = useRef<HTMLUListElement>(null);
  const close = () => {
    open.value = null;
  };

  const onlyKinds = text.startsWith(":");
  const wanted = (onlyKinds ? text.slice(1) : text).trim();

  useEffect(() => {
    setAt(0);
    if (onlyKinds || wanted.length < 2) {
      setFound(null);
      return;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      api
        .get<Found>("/search", { query: { q: wanted, limit: 30, clusters: resolve(selection()).length > 40 ? null : resolve(selection()), timeout: "3s" }, signal: abort.signal })
        .then(async ({ hits, clusters: asked }) => {
          const silent = asked.filter(({ ok }) => !ok).length;
          const choices = await Promise.all(
            hits.map(async (hit) => {
              const kinds = await kindsOf(hit.cluster).catch((): Kind[] => []);
              const group = hit.apiVersion.includes("/") ? (hit.apiVersion.split("/")[0] as string) : "";
              const kind = kinds.find((one) => one.kind === hit.kind && one.group === group);
              return {
                id: `${hit.cluster}/${hit.kind}/${hit.namespace ?? ""}/${hit.name}`,
                kind: hit.kind,
                text: hit.name,
                note: [hit.cluster, hit.namespace].filter(Boolean).join(" / "),
                href: object({ cluster: hit.cluster, kind: kind ? kindPath(kind) : hit.kind.toLowerCase(), namespace: hit.namespace, name: hit.name }),
              };
            }),
          );
          setFound({ text: wanted, hits: choices, note: silent ? `${silent} of ${asked.length} clusters did not answer` : "" });
        })
        .catch((error: unknown) => {
          if (!isAbort(error)) setFound({ text: wanted, hits: [], note: "the search failed" });
        });
    }, 180);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);

  const chosen = selection();
  const local: Choice[] = [
    ...(onlyKinds ? [] : saved.value.map(({ title, href, note }) => ({ id: `saved ${href}`, kind: "Favourite", text: title, note, href }))),
    ...(onlyKinds ? [] : pageLinks.flatMap(({ pages }) => pages.map(({ path, title }) => ({ id: path, kind: "Page", text: title, href: path })))),
    ...kindChoices(served, chosen),
    ...(onlyKinds
      ? []
      : clusters.value.map(({ name, state }) => ({
          id: `cluster ${name}`,
          kind: "Cluster",
          text: name,
          note: state,
          tone: clusterTone(state),
          href: explore([name], "pods"),
        }))),
  ];
  const ranked = local
    .map((choice) => ({ choice, rank: Math.max(score(choice.text, wanted), score(choice.id, wanted) - 1) }))
    .filter(({ rank }) => rank > 0)
    .sort((a, b) => b.rank - a.rank)
    .slice(0, onlyKinds ? 80 : wanted ? 12 : 30)
    .map(({ choice }) => choice);
  const hits = found?.text === wanted ? found.hits : [];
  const search: Choice[] = onlyKinds || !wanted ? [] : [{ id: "search", kind: "Search", text: `Everything that has “${wanted}”`, href: `/search?q=${encodeURIComponent(wanted)}` }];
  const choices = [...ranked, ...hits, ...search];

  const go = (choice: Choice | undefined) => {
    if (!choice) return;
    close();
    navigate(choice.href);
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = (at + step + choices.length) % Math.max(1, choices.length);
      setAt(next);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(choices[at]);
    }
  };
  return (
    <Dialog title={onlyKinds ? "Go to a kind" : "Search"} class="palette" onClose={close}>
      <input
        autofocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={choices[at] ? `palette-${at}` : undefined}
        aria-label="Search for pages, kinds, clusters and objects"
        placeholder="A page, a kind, a cluster, an object…"
        spellcheck={false}
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={keys}
      />
      <ul id="palette-list" role="listbox" aria-label="Results" ref={list}>
        {choices.map((choice, index) => (
          <li
            key={choice.id}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => go(choice)}
            onMouseMove={() => setAt(index)}
          >
            <span class="kind clip">{choice.kind}</span>
            {choice.tone !== undefined && <span class={`dot ${choice.tone}`} />}
            <span class="clip grow">{choice.text}</span>
            {choice.note && <span class="faint small clip">{choice.note}</span>}
          </li>
        ))}
        {!choices.length && <li class="muted" style={{ padding: "10px" }} role="option" aria-selected="false" aria-disabled="true">Nothing is called that.</li>}
      </ul>
      <footer>
        <span><kbd>↑</kbd> <kbd>↓</kbd> choose</span>
        <span><kbd>Enter</kbd> go</span>
        <span><kbd>:</kbd> kinds</span>
        <span class="grow" />
        <span>{found?.note}</span>
      </footer>
    </Dialog>
  );
}

function kindChoices(served: Kind[], chosen: string[]): Choice[] {
  if (!served.length) {
    return navKinds.flatMap(({ kinds }) => kinds.map(({ kind, title }) => ({ id: kind, kind: "Kind", text: title, href: explore(chosen, kind) })));
  }
  const listed = served.filter(({ verbs }) => verbs.includes("list"));
  return listed.map((kind) => ({
    id: kindPath(kind) + kind.shortNames.map((name) => ` ${name}`).join(""),
    kind: "Kind",
    text: kind.kind,
    note: kindPath(kind),
    href: explore(chosen, kindPath(findKind(listed, kindPath(kind)) ?? kind)),
  }));
}
