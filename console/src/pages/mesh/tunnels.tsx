/** The tunnels of a mesh, as the agents of their nodes see them: whether they answer, how fast, how much goes through. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Mesh } from "../../api/schema";
import { t } from "../../language";
import { Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age, latency } from "../../parts/time";
import { query, setQuery } from "../../router";
import { bytes } from "../traffic/ends";
import { topology, type TopologyLine } from "./topology";
import { rowsOf, type ClusterTunnels, type TunnelRow } from "./tunnel-rows";

/** More are not read by anybody: the filter narrows them down. */
const SHOWN = 200;
const TONES: Record<string, string> = { Up: "ok", Down: "bad" };

const COLUMNS: TableColumn<TunnelRow>[] = [
  { id: "from", title: t("From"), width: "minmax(130px, 1fr)", cell: ({ from }) => <span class="clip" title={from}>{from}</span> },
  { id: "peer", title: t("To"), width: "minmax(130px, 1fr)", cell: ({ peer }) => <span class="clip" title={peer}>{peer}</span> },
  { id: "state", title: t("State"), width: "minmax(96px, .6fr)", cell: ({ state, carries }) => <span class="row"><span class={`dot ${TONES[state] ?? ""}`} /> {state}{carries && <span class="tag info" title={t("Packets for networks that several gateways have go through this one.")}>{t("in use")}</span>}</span> },
  { id: "handshake", title: t("Handshake"), width: "96px", end: true, cell: ({ lastHandshake }) => <Age time={lastHandshake} ago /> },
  { id: "trip", title: t("Round trip"), width: "92px", end: true, cell: ({ roundTripMicros }) => (roundTripMicros === undefined ? "" : latency(roundTripMicros / 1000)) },
  { id: "loss", title: t("Loss"), width: "64px", end: true, cell: ({ lossPercent }) => (lossPercent === undefined ? "" : <span class={lossPercent > 0 ? "warn-text" : ""}>{lossPercent} %</span>) },
  { id: "received", title: t("Received"), width: "88px", end: true, cell: ({ receivedBytes }) => bytes(receivedBytes) },
  { id: "sent", title: t("Sent"), width: "88px", end: true, cell: ({ sentBytes }) => bytes(sentBytes) },
  { id: "mtu", title: "MTU", width: "60px", end: true, cell: ({ mtu }) => mtu ?? "" },
  { id: "endpoint", title: t("Path"), width: "minmax(140px, 1fr)", cell: ({ endpoint }) => <span class="clip mono" title={endpoint}>{endpoint}</span> },
];

/** The clusters, and a line where tunnels are: whole if all answer. */
function Topology({ clusters, rows, name }: { clusters: string[]; rows: TunnelRow[]; name: string }) {
  const { nodes, lines } = topology(clusters, rows);
  if (lines.length === 0) return null;
  const heights = nodes.map(({ y }) => y);
  const [top, bottom] = [Math.min(...heights) - 30, Math.max(...heights) + 30];
  const says = ({ from, to, up, down }: TopologyLine) => t("{from} and {to}: {up} tunnels answer, {down} do not", { from: from.name, to: to.name, up, down });
  return (
    <svg class="topology" viewBox={`0 ${top} 480 ${bottom - top}`} role="img" aria-label={t("Tunnels between the clusters of {name}. {lines}", { name, lines: lines.map(says).join("; ") })}>
      {lines.map((line) => (
        <line key={says(line)} x1={line.from.x} y1={line.from.y} x2={line.to.x} y2={line.to.y} class={line.down === 0 ? "ok" : line.up ? "warn" : "bad"}>
          <title>{says(line)}</title>
        </line>
      ))}
      {nodes.map(({ name, x, y }) => (
        <g key={name}>
          <circle cx={x} cy={y} r="7" />
          <text x={x} y={y < 90 ? y - 13 : y + 23}>{name}</text>
        </g>
      ))}
    </svg>
  );
}

export function Tunnels({ mesh }: { mesh: Mesh }) {
  const place = `${mesh.namespace}/${mesh.name}`;
  const read = useFetch(`tunnels ${place}`, (signal) => api.get<{ clusters: ClusterTunnels[] }>(path`/meshes/${mesh.namespace}/${mesh.name}/tunnels`, { signal }), 5000);
  const filter = query.value.get("tunnels") ?? "";
  return (
    <>
      <header>
        <h3>{t("Tunnels")}</h3>
        <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter tunnels of {name}", { name: mesh.name })} value={filter} onInput={(event) => setQuery({ tunnels: event.currentTarget.value || null })} />
      </header>
      <Loaded of={read}>
        {({ clusters }) => {
          const all = rowsOf(clusters);
          const rows = all.filter((row) => [row.from, row.peer, row.state, row.endpoint ?? ""].join(" ").toLowerCase().includes(filter.toLowerCase()));
          return (
            <>
              <Topology clusters={clusters.map(({ cluster }) => cluster)} rows={all} name={mesh.name} />
              {clusters.filter(({ why }) => why).map(({ cluster, why }) => <p key={cluster} class="body muted break"><b>{cluster}</b>: {why}</p>)}
              {rows.length > 0 && <ShortTable label={t("Tunnels of {name}", { name: mesh.name })} columns={COLUMNS} rows={rows.slice(0, SHOWN)} rowKey={({ from, peer }) => `${from} ${peer}`} />}
              {rows.length > SHOWN && <p class="body muted">{t("The first {SHOWN} of {count} are shown.", { SHOWN, count: rows.length })}</p>}
              {rows.length === 0 && <p class="body muted">{all.length ? t("The filter hides them.") : t("No agent has told of a tunnel yet.")}</p>}
            </>
          );
        }}
      </Loaded>
    </>
  );
}
