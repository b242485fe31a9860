/** Who talks to whom, drawn; the same data stands beside it as a table. */
import { useMemo } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ConversationEdge, ConversationGraph } from "../../api/schema";
import { locale, t } from "../../language";
import { GraphCanvas, usePlaces, type Graph } from "../../parts/graph-canvas";
import type { LayoutInput } from "../../parts/graph-layout";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { query, setQuery } from "../../router";
import { bytes } from "./ends";

type Edge = ConversationEdge & { verdict?: string | null; rule?: string | null };

const LEVELS = { group: t("by group"), namespace: t("by namespace"), workload: t("by workload") };
const lines = (count: number) => (count === 1 ? t("line") : t("lines"));
/** Edges in the table beside the graph; the filter finds the others. */
const LISTED = 200;

export function GraphTab() {
  const level = query.value.get("level") ?? "group";
  const chosen = query.value.get("node");
  const text = (query.value.get("q") ?? "").toLowerCase();
  const read = useFetch(`graph ${level}`, (signal) => api.get<ConversationGraph>("/guard/graph", { query: { level }, signal }), 10_000);
  return (
    <>
      <div class="row wrap">
        <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter the graph")} value={query.value.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <select class="select" aria-label={t("Level")} value={level} onChange={(event) => setQuery({ level: event.currentTarget.value, node: null })}>
          {Object.entries(LEVELS).map(([word, text]) => <option key={word} value={word}>{text}</option>)}
        </select>
        {chosen && <button type="button" class="button" onClick={() => setQuery({ node: null })}>{chosen} ✕</button>}
        {read.data && <span class="muted number">{t("{count} talk, over {count2} {lines}", { lines: lines(read.data.edges.length), count: read.data.nodes.length.toLocaleString(locale), count2: read.data.edges.length.toLocaleString(locale) })}</span>}
      </div>
      <Loaded of={read}>{(graph) => (graph.nodes.length ? <Twins graph={graph} chosen={chosen} text={text} /> : <Empty title={t("Nobody talks yet")}><p>{t("Agents report some seconds after something was said.")}</p></Empty>)}</Loaded>
    </>
  );
}

function Twins({ graph, chosen, text }: { graph: ConversationGraph; chosen: string | null; text: string }) {
  const shape = useMemo(() => JSON.stringify([graph.nodes.map(({ name }) => name), graph.edges.map(({ client, server }) => [client, server])]), [graph]);
  const places = usePlaces(shape, () => layoutOf(graph));
  const picture = useMemo(() => drawn(graph), [graph]);
  const lit = useMemo(() => {
    const wanted = new Set<number>();
    graph.nodes.forEach(({ name }, index) => {
      if ((chosen && name === chosen) || (!chosen && text && name.toLowerCase().includes(text))) wanted.add(index);
    });
    return wanted;
  }, [graph, chosen, text]);
  const edges = useMemo(() => {
    const all = graph.edges as Edge[];
    const shown = chosen || text ? all.filter(({ client, server }) => lit.has(client) || lit.has(server)) : all;
    return [...shown].sort((a, b) => b.bytes - a.bytes);
  }, [graph, lit, chosen, text]);
  const name = (index: number) => graph.nodes[index]?.name ?? "";
  const columns: TableColumn<Edge>[] = [
    { id: "client", title: t("Client"), width: "minmax(96px, 1fr)", cell: ({ client }) => <span title={name(client)}>{name(client)}</span> },
    { id: "server", title: t("Server"), width: "minmax(96px, 1fr)", cell: ({ server, verdict, rule }) => <span class={verdict === "violates" ? "bad-text" : ""} title={rule ? t("{name}, rule {rule}", { name: name(server), rule }) : name(server)}>{name(server)}</span> },
    { id: "sessions", title: t("Sessions"), width: "74px", end: true, cell: ({ sessions }) => sessions.toLocaleString(locale) },
    { id: "bytes", title: t("Bytes"), width: "74px", end: true, cell: (one) => bytes(one.bytes) },
    { id: "last", title: t("Last"), width: "72px", end: true, cell: ({ last }) => <Age time={last} /> },
  ];
  const sum = edges.reduce((all, one) => ({ sessions: all.sessions + one.sessions, bytes: all.bytes + one.bytes }), { sessions: 0, bytes: 0 });
  return (
    <div class="twins">
      <GraphCanvas graph={picture} places={places} lit={lit} label={t("{count} that talk, drawn; the table beside it says the same", { count: graph.nodes.length })} onChoose={(index) => setQuery({ node: index === null ? null : name(index) }, true)} />
      <aside class="stack" aria-label={t("The same as a table")}>
        <p class="muted number">{t("{count} {lines}, {sessions} {times}, {bytes}{what}", { lines: lines(edges.length), times: sum.sessions === 1 ? t("session") : t("sessions"), count: edges.length.toLocaleString(locale), sessions: sum.sessions.toLocaleString(locale), bytes: bytes(sum.bytes), what: edges.length > LISTED ? t("; the largest {LISTED} are listed", { LISTED }) : "" })}</p>
        <ShortTable label={t("Lines of the graph")} columns={columns} rows={edges.slice(0, LISTED)} rowKey={({ client, server }) => `${client} ${server}`} />
      </aside>
    </div>
  );
}

/** The graph as it is drawn. */
function drawn(graph: ConversationGraph): Graph {
  return {
    nodes: graph.nodes.map(({ name, kind }) => ({ name, note: kind, tone: kind === "external" ? "bad" : kind === "host" ? "faint" : "" })),
    edges: (graph.edges as Edge[]).map(({ client, server, bytes: count, verdict }) => ({ from: client, to: server, width: Math.min(3, Math.log10(1 + count) / 3), bad: verdict === "violates" })),
  };
}

/** Namespaces keep to themselves; those that say much are drawn together more strongly. */
function layoutOf(graph: ConversationGraph): LayoutInput {
  const groups = new Map<string, number>();
  const clusters = graph.nodes.map(({ namespace, kind }) => {
    const key = namespace ?? kind;
    return groups.get(key) ?? (groups.set(key, groups.size), groups.size - 1);
  });
  return { clusters, edges: graph.edges.map(({ client, server, bytes: count }) => ({ from: client, to: server, weight: 1 + Math.log10(1 + count) / 3 })) };
}
