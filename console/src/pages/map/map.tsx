/** A namespace as a map: what owns, selects, routes to, scales and uses what. The table beside it says the same. */
import { useMemo, useRef } from "preact/hooks";
import { api, path, type Options } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { asProblem } from "../../api/problem";
import { clusters, resolve } from "../../fleet";
import { useKeys } from "../../keys";
import { locale, t } from "../../language";
import { selection } from "../../nav";
import { GraphCanvas, usePlaces, type Graph } from "../../parts/graph-canvas";
import { Empty, Loaded, NoCluster } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { explore, object } from "../../places";
import { href, query, setQuery } from "../../router";
import { applications, around, namespaceMap, part, type MapNode, type MapObject, type MapPod, type NamespaceMap } from "./relations";

/** Beside pods, which come as rows: two thousand of them whole would be tens of megabytes. */
const KINDS: [path: string, kind: string][] = [
  ["deployments.apps", "Deployment"],
  ["replicasets.apps", "ReplicaSet"],
  ["statefulsets.apps", "StatefulSet"],
  ["daemonsets.apps", "DaemonSet"],
  ["jobs.batch", "Job"],
  ["cronjobs.batch", "CronJob"],
  ["services", "Service"],
  ["ingresses.networking.k8s.io", "Ingress"],
  ["networkpolicies.networking.k8s.io", "NetworkPolicy"],
  ["poddisruptionbudgets.policy", "PodDisruptionBudget"],
  ["horizontalpodautoscalers.autoscaling", "HorizontalPodAutoscaler"],
  ["persistentvolumeclaims", "PersistentVolumeClaim"],
];
/** Rows in the table; the filter finds the others. */
const LISTED = 200;

interface Read {
  objects: MapObject[];
  pods: MapPod[];
  /** Kinds that are not on it, and why. */
  missing: string[];
}

interface Table {
  columns: { name: string }[];
  rows: { name: string; cells: unknown[]; labels?: Record<string, string> }[];
}

async function read(cluster: string, namespace: string, signal: AbortSignal): Promise<Read> {
  const missing: string[] = [];
  const options = (more: Options["query"]): Options => ({ signal, query: { namespace, ...more } });
  const or = async <T,>(kind: string, asked: Promise<T>, otherwise: T): Promise<T> => {
    try {
      return await asked;
    } catch (error) {
      if (signal.aborted) throw error;
      const problem = asProblem(error);
      // A cluster that does not have a kind has nothing of it.
      if (problem.code === "no-such-kind") return otherwise;
      // One that does not answer is not an empty map.
      if (kind === "pods" && problem.code !== "forbidden") throw error;
      missing.push(problem.code === "forbidden" ? t("{kind} (your roles do not let you list them)", { kind }) : `${kind} (${problem.message})`);
      return otherwise;
    }
  };
  const route = (kind: string) => path`/clusters/${cluster}/resources/${kind}`;
  const [table, ...lists] = await Promise.all([
    or("pods", api.get<Table>(route("pods"), options({ as: "table" })), { columns: [], rows: [] }),
    ...KINDS.map(async ([at, kind]) => {
      const { items } = await or(at, api.get<{ items: MapObject[] }>(route(at), options({})), { items: [] });
      return items.map((one) => ({ ...one, kind, path: at }));
    }),
  ]);
  const column = (name: string) => table.columns.findIndex((one) => one.name.toLowerCase() === name);
  const [status, ready] = [column("status"), column("ready")];
  const pods = table.rows.map(({ name, cells, labels }) => ({ name, labels: labels ?? {}, status: String(cells[status] ?? ""), ready: String(cells[ready] ?? "") }));
  return { objects: lists.flat(), pods, missing };
}

export default function MapPage() {
  const chosen = resolve(selection());
  // The first that answers, and no other one when it stops to: what is looked at does not change by itself.
  const answers = ({ name, state }: { name: string; state: string }) => chosen.includes(name) && (state === "ready" || state === "degraded");
  const first = useRef<string | undefined>(undefined);
  first.current ??= clusters.value.find(answers)?.name;
  const cluster = query.value.get("cluster") ?? first.current ?? chosen[0] ?? "";
  const namespaces = useFetch(cluster || null, (signal) => api.get<{ namespaces: (string | { name: string })[] }>(path`/clusters/${cluster}/namespaces`, { signal, query: { timeout: "5s" } }));
  const names = (namespaces.data?.namespaces ?? []).map((one) => (typeof one === "string" ? one : one.name));
  const namespace = query.value.get("ns") ?? (names.includes("default") ? "default" : names[0]) ?? "";
  const found = useFetch(cluster && namespace ? `${cluster} ${namespace}` : null, (signal) => read(cluster, namespace, signal), 30_000);
  useKeys([{ key: "/", does: t("filter"), run: () => document.getElementById("map-filter")?.focus() }]);
  return (
    <div class="page full">
      <header>
        <h1>{t("Map")}</h1>
        <select class="select" aria-label={t("Cluster")} value={cluster} onChange={(event) => setQuery({ cluster: event.currentTarget.value, ns: null, at: null, node: null })}>
          {[...new Set([...(cluster ? [cluster] : []), ...clusters.value.map(({ name }) => name)])].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <select class="select" aria-label="Namespace" value={namespace} onChange={(event) => setQuery({ ns: event.currentTarget.value, at: null, node: null })}>
          {[...new Set([...(namespace ? [namespace] : []), ...names])].map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <input id="map-filter" class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter the map")} value={query.value.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <label class="row small"><input type="checkbox" checked={query.value.get("pods") === "each"} onChange={(event) => setQuery({ pods: event.currentTarget.checked ? "each" : null, node: null })} /> {t("Each pod")}</label>
        {query.value.get("at") && <button type="button" class="button" onClick={() => setQuery({ at: null })}>{t("around {get} ✕", { get: query.value.get("at") })}</button>}
      </header>
      {!cluster ? (
        <NoCluster />
      ) : namespace ? (
        <Loaded of={found}>{(data) => <Drawn of={data} cluster={cluster} namespace={namespace} />}</Loaded>
      ) : (
        <Loaded of={namespaces}>{() => <Empty title={t("There is no namespace in {cluster}", { cluster })} />}</Loaded>
      )}
    </div>
  );
}

function Drawn({ of, cluster, namespace }: { of: Read; cluster: string; namespace: string }) {
  const [each, at, chosen] = [query.value.get("pods") === "each", query.value.get("at"), query.value.get("node")];
  const filter = (query.value.get("q") ?? "").toLowerCase();
  const map = useMemo(() => {
    const whole = namespaceMap(of.objects, of.pods, each);
    return at ? part(whole, around(whole, at)) : whole;
  }, [of, each, at]);
  const shape = useMemo(() => JSON.stringify([map.nodes.map(({ id }) => id), map.edges.map(({ from, to }) => [from, to])]), [map]);
  const places = usePlaces(shape, () => ({ clusters: applications(map), edges: map.edges.map(({ from, to, how }) => ({ from, to, weight: how === "owns" ? 3 : 1 })) }));
  const picture = useMemo<Graph>(() => ({
    nodes: map.nodes.map(({ name, kind, state, tone, pods }) => ({ name: kind === "Pod" ? name : `${kind} ${name}`, note: kind === "Pod" ? ["Pod", state].filter(Boolean).join(", ") : state, tone, size: pods ? 1 + Math.min(2, Math.log10(pods.length)) : kind === "Pod" ? 0.8 : 1.2 })),
    edges: map.edges.map(({ from, to, how }) => ({ from, to, width: how === "owns" ? 1 : 0.3 })),
  }), [map]);
  const lit = useMemo(() => {
    const wanted = new Set<number>();
    map.nodes.forEach(({ id, name, kind, state }, index) => {
      if (chosen ? id === chosen : filter && `${kind} ${name} ${state}`.toLowerCase().includes(filter)) wanted.add(index);
    });
    return wanted;
  }, [map, chosen, filter]);
  if (!map.nodes.length) {
    return <Empty title={t("Nothing is in {namespace}", { namespace })}><p>{of.missing.length ? t("Not on the map: {missing}.", { missing: of.missing.join("; ") }) : t("No workload, Service, Ingress or claim.")}</p></Empty>;
  }
  const troubled = map.nodes.filter(({ tone }) => tone === "bad" || tone === "warn").length;
  return (
    <>
      <p class="muted small">
        <span class="number">{of.pods.length.toLocaleString(locale)}</span> {of.pods.length === 1 ? t("pod") : t("pods")}, <span class="number">{(map.nodes.length).toLocaleString(locale)}</span>{" "}{t("{what} drawn", { what: map.nodes.length === 1 ? t("thing") : t("things") })}{troubled ? <>, <span class="warn-text">{t("{troubled} not well", { troubled })}</span></> : ""}.
        {of.missing.length > 0 && ` ${t("Not on the map: {missing}.", { missing: of.missing.join("; ") })}`}
      </p>
      <div class="twins">
        <GraphCanvas graph={picture} places={places} lit={lit} label={t("{count} things of {namespace}, drawn; the table beside it says the same", { count: map.nodes.length, namespace })} onChoose={(index) => setQuery({ node: index === null ? null : (map.nodes[index]?.id ?? null) }, true)} />
        <aside class="stack" aria-label={t("The same as a table")}>
          {chosen ? <Chosen map={map} id={chosen} cluster={cluster} namespace={namespace} /> : <Things map={map} lit={lit} filtered={filter !== ""} cluster={cluster} namespace={namespace} />}
        </aside>
      </div>
    </>
  );
}

const toneClass = ({ tone }: MapNode): string => (tone === "bad" ? "bad-text" : tone === "warn" ? "warn-text" : "muted");

/** A link to its page; of pods that are one node, to their table. */
function Named({ of, cluster, namespace }: { of: MapNode; cluster: string; namespace: string }) {
  const owner = / pods of (.*)$/.exec(of.name)?.[1];
  if (of.pods) return <a href={explore([cluster], "pods", { ns: namespace, q: owner ?? null })} title={of.name}>{of.name}</a>;
  return of.path ? <a href={object({ cluster, kind: of.path, namespace, name: of.name })} title={of.name}>{of.name}</a> : <span title={of.name}>{of.name}</span>;
}

interface Place {
  map: NamespaceMap;
  cluster: string;
  namespace: string;
}

function Things({ map, lit, filtered, cluster, namespace }: Place & { lit: Set<number>; filtered: boolean }) {
  const order = (node: MapNode) => (node.tone === "bad" ? 0 : node.tone === "warn" ? 1 : 2);
  const shown = map.nodes.filter((_, index) => !filtered || lit.has(index)).sort((a, b) => order(a) - order(b));
  const columns: TableColumn<MapNode>[] = [
    { id: "kind", title: t("Kind"), width: "minmax(112px, .9fr)", cell: ({ kind }) => <span class="muted" title={kind}>{kind}</span> },
    { id: "name", title: t("Name"), width: "minmax(120px, 1.6fr)", cell: (node) => <Named of={node} cluster={cluster} namespace={namespace} /> },
    { id: "state", title: t("State"), width: "minmax(70px, .7fr)", cell: (node) => <span class={toneClass(node)} title={node.state}>{node.state}</span> },
  ];
  return (
    <>
      <p class="muted number">{t("{count} {what}{what2}, what is not well first", { count: shown.length.toLocaleString(locale), what: shown.length === 1 ? t("thing") : t("things"), what2: shown.length > LISTED ? t("; the first {LISTED} are listed", { LISTED }) : "" })}</p>
      <ShortTable label={t("Things on the map")} columns={columns} rows={shown.slice(0, LISTED)} rowKey={({ id }) => id} />
    </>
  );
}

function Chosen({ map, id, cluster, namespace }: Place & { id: string }) {
  const index = map.nodes.findIndex((node) => node.id === id);
  const node = map.nodes[index];
  if (!node) return <Empty title={t("It is gone")}><p><a href={href("/map", { cluster, ns: namespace })}>{t("The whole map")}</a></p></Empty>;
  const HERE: Record<string, string> = { owns: t("owns"), selects: t("selects"), "routes to": t("routes to"), scales: t("scales"), uses: t("uses") };
  const BACK: Record<string, string> = { owns: t("is owned by"), selects: t("is selected by"), "routes to": t("is reached through"), scales: t("is scaled by"), uses: t("is used by") };
  const lines = map.edges.flatMap(({ from, to, how }) => {
    if (from === index) return [{ how: HERE[how] ?? how, other: map.nodes[to] as MapNode }];
    return to === index ? [{ how: BACK[how] ?? how, other: map.nodes[from] as MapNode }] : [];
  });
  const columns: TableColumn<(typeof lines)[number]>[] = [
    { id: "how", title: t("It …"), width: "minmax(100px, .8fr)", cell: ({ how }) => <span class="muted">{how}</span> },
    { id: "kind", title: t("Kind"), width: "minmax(80px, .7fr)", cell: ({ other }) => <span class="muted" title={other.kind}>{other.kind}</span> },
    { id: "name", title: t("Name"), width: "minmax(110px, 1.4fr)", cell: ({ other }) => <Named of={other} cluster={cluster} namespace={namespace} /> },
    { id: "state", title: t("State"), width: "minmax(60px, .6fr)", cell: ({ other }) => <span class={toneClass(other)}>{other.state}</span> },
  ];
  return (
    <>
      <div class="row wrap">
        <span class="muted">{node.kind}</span> <strong class="break"><Named of={node} cluster={cluster} namespace={namespace} /></strong> {node.state && <span class={toneClass(node)}>{node.state}</span>}
        <span class="grow" />
        <button type="button" class="button" onClick={() => setQuery({ at: node.id, node: null })}>{t("Only what hangs on it")}</button>
        <button type="button" class="button quiet" onClick={() => setQuery({ node: null })}>{t("All")}</button>
      </div>
      {lines.length ? <ShortTable label={t("What {name} has to do with", { name: node.name })} columns={columns} rows={lines.slice(0, LISTED)} rowKey={({ how, other }) => `${how} ${other.id}`} /> : <p class="muted">{t("Nothing hangs on it.")}</p>}
      {lines.length > LISTED && <p class="muted small">{t("{what} more are not listed.", { what: lines.length - LISTED })}</p>}
    </>
  );
}
