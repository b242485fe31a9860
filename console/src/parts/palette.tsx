/** ⌘K: goes to a page, a kind, a cluster or an object by its name. `:` lists kinds alone. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Kind } from "../api/schema";
import { clusters, clusterTone, findKind, kindPath, kindsOf, resolve } from "../fleet";
import { rich, t } from "../language";
import { kinds as navKinds, pageLinks, selection } from "../nav";
import { explore, object } from "../places";
import { navigate } from "../router";
import { saved } from "../saved";
import { kindOf, useKinds, useSearch, type Search } from "../searching";
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
function useFirstKinds(): Kind[] {
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

/** How the search stands, in a few words. */
function note({ data, loading, problem }: Search): string {
  if (problem) return t("the search failed");
  const silent = data?.clusters.filter(({ ok }) => !ok).length ?? 0;
  return [
    loading ? t("searching…") : "",
    silent ? t("{silent} of {count} clusters did not answer", { silent, count: data?.asked ?? 0 }) : "",
    data?.incomplete.length ? t("not everything could be read") : "",
  ].filter(Boolean).join(", ");
}

function Open({ mode }: { mode: Mode }) {
  const [text, setText] = useState(mode === "kinds" ? ":" : "");
  /** The choice at hand, by its name: more come while one looks. */
  const [at, setAt] = useState<string | null>(null);
  const listed = useFirstKinds();
  const list = useRef<HTMLUListElement>(null);
  const close = () => {
    open.value = null;
  };

  const onlyKinds = text.startsWith(":");
  const wanted = (onlyKinds ? text.slice(1) : text).trim();

  useEffect(() => setAt(null), [text]);
  const all = resolve(selection());
  const found = useSearch(onlyKinds || wanted.length < 2 ? null : wanted, all.length > 40 ? null : all, 30, 180);
  const served = useKinds(found.data?.hits ?? []);

  const chosen = selection();
  const local: Choice[] = [
    ...(onlyKinds ? [] : saved.value.map(({ title, href, note }) => ({ id: `saved ${href}`, kind: t("Favourite"), text: title, note, href }))),
    ...(onlyKinds ? [] : pageLinks.flatMap(({ pages }) => pages.map(({ path, title }) => ({ id: path, kind: t("Page"), text: title, href: path })))),
    ...kindChoices(listed, chosen),
    ...(onlyKinds
      ? []
      : clusters.value.map(({ name, state }) => ({
          id: `cluster ${name}`,
          kind: t("Cluster"),
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
  const hits = (found.data?.hits ?? []).map((hit): Choice => ({
    id: `${hit.cluster}/${hit.kind}/${hit.namespace ?? ""}/${hit.name}`,
    kind: hit.kind,
    text: hit.name,
    note: [hit.cluster, hit.namespace].filter(Boolean).join(" / "),
    href: object({ cluster: hit.cluster, kind: kindOf(hit, served), namespace: hit.namespace, name: hit.name }),
  }));
  const search: Choice[] = onlyKinds || !wanted ? [] : [{ id: "search", kind: t("Search"), text: t("Everything that has “{wanted}”", { wanted }), href: `/search?q=${encodeURIComponent(wanted)}` }];
  const choices = [...ranked, ...hits, ...search];
  const place = Math.max(0, choices.findIndex(({ id }) => id === at));

  const go = (choice: Choice | undefined) => {
    if (!choice) return;
    close();
    navigate(choice.href);
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const next = (place + step + choices.length) % Math.max(1, choices.length);
      setAt(choices[next]?.id ?? null);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(choices[place]);
    }
  };
  return (
    <Dialog title={onlyKinds ? t("Go to a kind") : t("Search")} class="palette" onClose={close}>
      <input
        autofocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={choices[place] ? `palette-${place}` : undefined}
        aria-label={t("Search for pages, kinds, clusters and objects")}
        placeholder={t("A page, a kind, a cluster, an object…")}
        spellcheck={false}
        autocomplete="off"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={keys}
      />
      <ul id="palette-list" role="listbox" aria-label={t("Results")} ref={list}>
        {choices.map((choice, index) => (
          <li
            key={choice.id}
            id={`palette-${index}`}
            role="option"
            aria-selected={index === place}
            onClick={() => go(choice)}
            onMouseMove={() => setAt(choice.id)}
          >
            <span class="kind clip">{choice.kind}</span>
            {choice.tone !== undefined && <span class={`dot ${choice.tone}`} />}
            <span class="clip grow">{choice.text}</span>
            {choice.note && <span class="faint small clip">{choice.note}</span>}
          </li>
        ))}
        {!choices.length && !found.loading && <li class="muted" style={{ padding: "10px" }} role="option" aria-selected="false" aria-disabled="true">{t("Nothing is called that.")}</li>}
      </ul>
      <footer>
        <span>{rich("{kbd} {kbd2} choose", { kbd: <kbd>↑</kbd>, kbd2: <kbd>↓</kbd> })}</span>
        <span>{rich("{kbd} go", { kbd: <kbd>Enter</kbd> })}</span>
        <span>{rich("{kbd} kinds", { kbd: <kbd>:</kbd> })}</span>
        <span class="grow" />
        <span role="status">{note(found)}</span>
      </footer>
    </Dialog>
  );
}

function kindChoices(served: Kind[], chosen: string[]): Choice[] {
  if (!served.length) {
    return navKinds.flatMap(({ kinds }) => kinds.map(({ kind, title }) => ({ id: kind, kind: t("Kind"), text: title, href: explore(chosen, kind) })));
  }
  const listed = served.filter(({ verbs }) => verbs.includes("list"));
  return listed.map((kind) => ({
    id: kindPath(kind) + kind.shortNames.map((name) => ` ${name}`).join(""),
    kind: t("Kind"),
    text: kind.kind,
    note: kindPath(kind),
    href: explore(chosen, kindPath(findKind(listed, kindPath(kind)) ?? kind)),
  }));
}
