/**
 * Who waits for what, and who holds it: from those who wait on the left, over what they wait for, to who
 * holds it on the right. Goroutines that came the same way are one box with their number.
 */
import { locale, t } from "../../language";

export interface Graph {
  nodes: { id: string; kind: "goroutines" | "resource"; label: string; count: number; finding?: string }[];
  edges: { from: string; to: string; kind: "waits_for" | "held_by"; count: number; confidence: string; in_cycle?: boolean }[];
}

const WIDTH = 250;
const HEIGHT = 44;
const ACROSS = 90;
const DOWN = 14;
/** Boxes in one column; the rest is one box. */
const MOST = 12;

type Placed = Graph["nodes"][number] & { column: number; row: number; holder: boolean };

/** Puts each box in a column behind those that lead to it; what is in a circle keeps the first place. */
export function place({ nodes, edges }: Graph): Placed[] {
  const column = new Map(nodes.map(({ id }) => [id, 0]));
  // Longest paths; a circle would go on for ever, so that there are as many rounds as boxes at most.
  for (let round = 0; round < Math.min(nodes.length, 8); round++) {
    let moved = false;
    for (const { from, to } of edges) {
      const next = (column.get(from) ?? 0) + 1;
      if (next > (column.get(to) ?? 0) && next < 8) {
        column.set(to, next);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const holders = new Set(edges.filter(({ kind }) => kind === "held_by").map(({ to }) => to));
  const rows = new Map<number, number>();
  return [...nodes]
    .sort((a, b) => b.count - a.count)
    .flatMap((node) => {
      const at = column.get(node.id) ?? 0;
      const row = rows.get(at) ?? 0;
      if (row >= MOST) return [];
      rows.set(at, row + 1);
      return [{ ...node, column: at, row, holder: holders.has(node.id) }];
    });
}

function short(text: string, length: number): string {
  return text.length > length ? `…${text.slice(1 - length)}` : text;
}

export function WaitGraph({ graph }: { graph: Graph }) {
  const placed = place(graph);
  const byId = new Map(placed.map((node) => [node.id, node]));
  const tall = Math.max(...placed.map(({ row }) => row)) + 1;
  const wide = Math.max(...placed.map(({ column }) => column)) + 1;
  const inColumn = (column: number) => placed.filter((node) => node.column === column).length;
  const x = ({ column }: Placed) => column * (WIDTH + ACROSS) + 1;
  const y = ({ column, row }: Placed) => (row + (tall - inColumn(column)) / 2) * (HEIGHT + DOWN) + 1;
  const hidden = graph.nodes.length - placed.length;
  return (
    <section class="card waitgraph" aria-label={t("Who waits for whom")} tabIndex={0}>
      <svg role="img" aria-label={t("{count} boxes: who waits for what, and who holds it", { count: placed.length })} width={wide * (WIDTH + ACROSS) - ACROSS + 2} height={tall * (HEIGHT + DOWN)}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0 8 4 0 8z" style={{ fill: "context-stroke", stroke: "none" }} />
          </marker>
        </defs>
        {graph.edges.map(({ from, to, kind, confidence, in_cycle, count }) => {
          const [one, other] = [byId.get(from), byId.get(to)];
          if (!one || !other) return null;
          const back = other.column <= one.column;
          const [ax, ay] = [x(one) + (back ? WIDTH / 2 : WIDTH), y(one) + (back ? HEIGHT : HEIGHT / 2)];
          const [bx, by] = [x(other) + (back ? WIDTH / 2 : 0), y(other) + (back ? HEIGHT : HEIGHT / 2)];
          const bend = back ? `C ${ax} ${ay + 60} ${bx} ${by + 60}` : `C ${ax + ACROSS / 2} ${ay} ${bx - ACROSS / 2} ${by}`;
          const kinds = [kind === "held_by" ? "held" : "", in_cycle ? "cycle" : "", confidence === "possible" ? "possible" : ""].join(" ");
          return <path key={`${from} ${to} ${kind}`} class={kinds} d={`M ${ax} ${ay} ${bend} ${bx} ${by}`} marker-end="url(#arrow)" style={{ strokeWidth: String(1 + Math.min(5, Math.log10(Math.max(1, count)))) }} />;
        })}
        {placed.map((node) => (
          <g key={node.id} class={`${node.kind}${node.holder ? " holder" : ""}`} transform={`translate(${x(node)} ${y(node)})`}>
            <title>{node.label}</title>
            <rect width={WIDTH} height={HEIGHT} rx="6" />
            <text x="10" y="18">{short(node.label, 36)}</text>
            <text x="10" y="35" class="count">{node.kind === "resource" ? t("{count} wait for it", { count: node.count.toLocaleString(locale) }) : node.holder ? t("holds it") : t("{count} wait here", { count: node.count.toLocaleString(locale) })}</text>
          </g>
        ))}
      </svg>
      {hidden > 0 && <p class="body muted">{t("{hidden} smaller boxes are not drawn.", { hidden })}</p>}
    </section>
  );
}
