/** A mesh as a drawing: its clusters in a circle, and a line where tunnels are. Plain values in, places out. */
import type { TunnelRow } from "./tunnel-rows";

export interface TopologyNode {
  name: string;
  x: number;
  y: number;
}

export interface TopologyLine {
  from: TopologyNode;
  to: TopologyNode;
  up: number;
  down: number;
}

/** The cluster that a peer is of: peers are called `MESH--CLUSTER--NODE`. */
function clusterOf(peer: string): string | undefined {
  return peer.split("--")[1];
}

export function topology(clusters: string[], tunnels: TunnelRow[]): { nodes: TopologyNode[]; lines: TopologyLine[] } {
  const nodes = clusters.map((name, index) => {
    const turn = (index / clusters.length) * 2 * Math.PI - Math.PI;
    return { name, x: 240 + 150 * Math.cos(turn), y: 90 + 62 * Math.sin(turn) };
  });
  const lines = new Map<string, TopologyLine>();
  for (const { from, peer, state } of tunnels) {
    const [one, other] = [from.split("/")[0], clusterOf(peer)].map((name) => nodes.find((node) => node.name === name));
    if (!one || !other || one === other) continue;
    const [first, second] = nodes.indexOf(one) < nodes.indexOf(other) ? [one, other] : [other, one];
    const key = `${first.name} ${second.name}`;
    const line = lines.get(key) ?? { from: first, to: second, up: 0, down: 0 };
    if (state === "Up") line.up += 1;
    else if (state === "Down") line.down += 1;
    lines.set(key, line);
  }
  return { nodes, lines: [...lines.values()] };
}
