/** Everything that has a text in its name or labels, in all chosen clusters, as they answer. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { AskedCluster, Found, Hit, Kind } from "../../api/schema";
import { fleet, kindPath, kindsOf, resolve } from "../../fleet";
import { useKeys } from "../../keys";
import { selection } from "../../nav";
import { Empty, Loaded } from "../../parts/problem";
import { SaveSearch } from "../../parts/star";
import { VirtualTable } from "../../parts/table";
import { latency } from "../../parts/time";
import { ALL, clusterPage, object } from "../../places";
import { navigate, query, setQuery } from "../../router";

export default function Search() {
  const text = query.value.get("q") ?? "";
  const [typed, setTyped] = useState(text);
  const chosen = selection();
  const clusters = chosen.includes(ALL) ? null : resolve(chosen);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => setQuery({ q: typed.trim() }), 250);
    return () => clearTimeout(timer);
  }, [typed]);
  useKeys([{ key: "/", does: "search", run: () => document.getElementById("search")?.focus() }]);
  const found = useFetch(text.length > 1 && fleet.value ? `${text} ${clusters?.join() ?? ""}` : null, (signal) =>
    api.get<Found>("/search", { query: { q: text, clusters, limit: 500, timeout: "10s" }, signal }),
  );
  return (
    <div class="page full">
      <header>
        <h1>Search</h1>
        <input
          id="search"
          class="field"
          type="search"
          style={{ width: "min(420px, 60vw)" }}
          placeholder="A name, a part of one, a label"
          aria-label="Search for objects"
          autofocus
          spellcheck={false}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape" || event.key === "Enter") event.currentTarget.blur();
          }}
        />
        {found.loading && <span class="muted small" role="status">Asking…</span>}
        <span class="grow" />
        {text.length > 1 && <SaveSearch title={`Search: ${text}`} />}
      </header>
      {text.length < 2 ? (
        <Empty title="Search in every cluster at once"><p>Type two letters or more. Names and labels are searched; each cluster says whether it answered.</p></Empty>
      ) : (
        <Loaded of={found}>{(data) => <Results of={data} />}</Loaded>
      )}
    </div>
  );
}

function Results({ of }: { of: Found }) {
  const [at, setAt] = useState(0);
  const kinds = useKinds(of.hits);
  const place = (hit: Hit) => {
    const group = hit.apiVersion.includes("/") ? (hit.apiVersion.split("/")[0] as string) : "";
    const kind = kinds.get(hit.cluster)?.find((one) => one.kind === hit.kind && one.group === group);
    return object({ cluster: hit.cluster, kind: kind ? kindPath(kind) : hit.kind.toLowerCase(), namespace: hit.namespace, name: hit.name });
  };
  return (
    <>
      <Answered clusters={of.clusters} />
      {of.truncated && <p class="muted small">There is more; narrow the search down.</p>}
      {(of.incomplete ?? []).length > 0 && (
        <p class="muted small">Not searched: {(of.incomplete ?? []).slice(0, 4).map(({ cluster, kind, why }) => `${kind} of ${cluster} (${why})`).join(", ")}.</p>
      )}
      <VirtualTable<Hit>
        label="Found objects"
        count={of.hits.length}
        row={(index) => of.hits[index]}
        rowKey={({ cluster, apiVersion, kind, namespace, name }) => [cluster, apiVersion, kind, namespace, name].join("/")}
        at={Math.min(at, Math.max(0, of.hits.length - 1))}
        onAt={setAt}
        onOpen={(hit, event) => {
          if (!(event?.target as Element | undefined)?.closest("a")) navigate(place(hit));
        }}
        version={kinds}
        columns={[
          { id: "kind", title: "Kind", width: "minmax(110px, .7fr)", cell: ({ kind }) => <span class="muted">{kind}</span> },
          { id: "name", title: "Name", width: "minmax(220px, 2fr)", cell: (hit) => <a href={place(hit)} title={hit.name}>{hit.name}</a> },
          { id: "namespace", title: "Namespace", width: "minmax(110px, 1fr)", cell: ({ namespace }) => namespace },
          { id: "cluster", title: "Cluster", width: "minmax(110px, 1fr)", cell: ({ cluster }) => cluster },
          { id: "why", title: "Found by", width: "minmax(140px, 1.2fr)", cell: ({ why }) => <span class="muted" title={why}>{why}</span> },
        ]}
      >
        {of.hits.length === 0 && <Empty title="Nothing is found"><p>The line above says which clusters answered.</p></Empty>}
      </VirtualTable>
    </>
  );
}

/** Who answered; shared with other pages that ask many clusters once. */
export function Answered({ clusters }: { clusters: AskedCluster[] }) {
  const fine = clusters.filter(({ ok }) => ok);
  const slowest = Math.max(0, ...fine.map(({ tookMs }) => tookMs));
  return (
    <div class="strip" aria-label="Clusters">
      <span class="one">
        <span class={`dot ${fine.length ? "ok" : "bad"}`} />
        {fine.length} of {clusters.length} {clusters.length === 1 ? "cluster" : "clusters"} answered{fine.length ? ` within ${latency(slowest)}` : ""}
      </span>
      {clusters.filter(({ ok }) => !ok).map(({ name, problem }) => (
        <span key={name} class="one" title={problem?.detail}>
          <span class="dot bad" />
          <a href={clusterPage(name)}>{name}</a>
          <span class="bad-text clip" style={{ maxWidth: "60ch" }}>{problem?.detail ?? "did not answer"}</span>
        </span>
      ))}
    </div>
  );
}

function useKinds(hits: Hit[]): Map<string, Kind[]> {
  const [kinds, setKinds] = useState(new Map<string, Kind[]>());
  const names = [...new Set(hits.map(({ cluster }) => cluster))];
  useEffect(() => {
    let gone = false;
    void Promise.all(names.map(async (name) => [name, await kindsOf(name).catch((): Kind[] => [])] as const)).then((all) => {
      if (!gone) setKinds(new Map(all));
    });
    return () => {
      gone = true;
    };
  }, [names.join()]);
  return kinds;
}
