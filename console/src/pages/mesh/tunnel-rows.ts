/** What agents say of the tunnels of a mesh, as rows of one table. */

export interface Tunnel {
  peer: string;
  state: string;
  endpoint?: string;
  lastHandshake?: string;
  receivedBytes: number;
  sentBytes: number;
  lossPercent?: number;
  roundTripMicros?: number;
  mtu?: number;
  carries?: boolean;
}

interface NodeTunnels {
  node: string;
  endpoint?: string;
  networks: string[];
  /** Since when its agent has said nothing: what it said last may be so no longer. */
  silentSince?: string;
  status?: { implementation: string; mtu: number; peers: number; unreachable: number; observed?: string; tunnels?: Tunnel[] };
}

export interface ClusterTunnels {
  cluster: string;
  why?: string;
  nodes: NodeTunnels[];
}

export type TunnelRow = Tunnel & { from: string; observed: string | undefined };

/** Those that do not answer first. */
export function rowsOf(clusters: ClusterTunnels[]): TunnelRow[] {
  const rows = clusters.flatMap(({ cluster, nodes }) =>
    nodes.flatMap(({ node, status, silentSince }) =>
      (status?.tunnels ?? []).map((tunnel) => ({ ...tunnel, state: silentSince ? "Silent" : tunnel.state, from: `${cluster}/${node}`, observed: status?.observed })),
    ),
  );
  const rank = ({ state }: TunnelRow) => (state === "Down" ? 0 : state === "Up" ? 2 : 1);
  return rows.sort((one, other) => rank(one) - rank(other) || one.from.localeCompare(other.from) || one.peer.localeCompare(other.peer));
}
