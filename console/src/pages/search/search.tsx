/** Everything that has a text in its name or labels, in all chosen clusters, as they answer. */
import { useEffect, useState } from "preact/hooks";
import type { AskedCluster, Hit } from "../../api/schema";
import { fleet, resolve } from "../../fleet";
import { useKeys } from "../../keys";
import { t } from "../../language";
import { selection } from "../../nav";
import { Empty, Loaded } from "../../parts/problem";
import { SaveSearch } from "../../parts/star";
import { VirtualTable } from "../../parts/table";
import { latency } from "../../parts/time";
import { ALL, clusterPage, object } from "../../places";
import { navigate, query, setQuery } from "../../router";
import { kindOf, useKinds, useSearch, type Searched } from "../../searching";

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
  useKeys([{ key: "/", does: t("search"), run: () => document.getElementById("search")?.focus() }]);
  const found = useSearch(text.length > 1 && fleet.value ? text : null, clusters, 500);
  return (
    <div class="page full">
      <header>
        <h1>{t("Search")}</h1>
        <input
          id="search"
          class="field"
          type="search"
          style={{ width: "min(420px, 60vw)" }}
          placeholder={t("A name, a part of one, a label")}
          aria-label={t("Search for objects")}
          autofocus
          spellcheck={false}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape" || event.key === "Enter") event.currentTarget.blur();
          }}
        />
        {found.loading && <span class="muted small" role="status">{t("Asking…")}</span>}
        <span class="grow" />
        {text.length > 1 && <SaveSearch title={t("Search: {text}", { text })} />}
      </header>
      {text.length < 2 ? (
        <Empty title={t("Search in every cluster at once")}><p>{t("Type two letters or more. Names and labels are searched; each cluster says whether it answered.")}</p></Empty>
      ) : (
        <Loaded of={found}>{(data) => <Results of={data} />}</Loaded>
      )}
    </div>
  );
}

function Results({ of }: { of: Searched }) {
  const [at, setAt] = useState(0);
  const kinds = useKinds(of.hits);
  const place = (hit: Hit) => object({ cluster: hit.cluster, kind: kindOf(hit, kinds), namespace: hit.namespace, name: hit.name });
  return (
    <>
      <Answered clusters={of.clusters} asked={of.asked} />
      {of.truncated && <p class="muted small">{t("There is more; narrow the search down.")}</p>}
      {of.incomplete.length > 0 && (
        <p class="muted small">{t("Not searched: {map}.", { map: of.incomplete.slice(0, 4).map(({ cluster, kind, why }) => t("{kind} of {cluster} ({why})", { kind, cluster, why })).join(", ") })}</p>
      )}
      <VirtualTable<Hit>
        label={t("Found objects")}
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
          { id: "kind", title: t("Kind"), width: "minmax(110px, .7fr)", cell: ({ kind }) => <span class="muted">{kind}</span> },
          { id: "name", title: t("Name"), width: "minmax(220px, 2fr)", cell: (hit) => <a href={place(hit)} title={hit.name}>{hit.name}</a> },
          { id: "namespace", title: "Namespace", width: "minmax(110px, 1fr)", cell: ({ namespace }) => namespace },
          { id: "cluster", title: t("Cluster"), width: "minmax(110px, 1fr)", cell: ({ cluster }) => cluster },
          { id: "why", title: t("Found by"), width: "minmax(140px, 1.2fr)", cell: ({ why }) => <span class="muted" title={why}>{why}</span> },
        ]}
      >
        {of.hits.length === 0 && of.done && <Empty title={t("Nothing is found")}><p>{t("The line above says which clusters answered.")}</p></Empty>}
      </VirtualTable>
    </>
  );
}

/** Who answered; shared with other pages that ask many clusters once. */
export function Answered({ clusters, asked = clusters.length }: { clusters: AskedCluster[]; asked?: number }) {
  const fine = clusters.filter(({ ok }) => ok);
  const slowest = Math.max(0, ...fine.map(({ tookMs }) => tookMs));
  return (
    <div class="strip" aria-label={t("Clusters")}>
      <span class="one">
        <span class={`dot ${fine.length ? "ok" : "bad"}`} />
        {t("{count} of {count2} {what} answered{what2}", { count: fine.length, count2: asked, what: asked === 1 ? t("cluster") : t("clusters"), what2: fine.length ? ` ${t("within {latency}", { latency: latency(slowest) })}` : "" })}
      </span>
      {clusters.filter(({ ok }) => !ok).map(({ name, problem }) => (
        <span key={name} class="one" title={problem?.detail}>
          <span class="dot bad" />
          <a href={clusterPage(name)}>{name}</a>
          <span class="bad-text clip" style={{ maxWidth: "60ch" }}>{problem?.detail ?? t("did not answer")}</span>
        </span>
      ))}
    </div>
  );
}
