import { expect, test } from "vitest";
import { rowsOf } from "./tunnel-rows";

const tunnel = (peer: string, state: string) => ({ peer, state, receivedBytes: 0, sentBytes: 0 });

test("tunnels that do not answer come first, whichever node has them", () => {
  const status = (tunnels: ReturnType<typeof tunnel>[]) => ({ implementation: "kernel", mtu: 1420, peers: tunnels.length, unreachable: 0, tunnels });
  const rows = rowsOf([
    { cluster: "eu", nodes: [{ node: "a", networks: [], status: status([tunnel("us-1", "Up"), tunnel("us-2", "Down")]) }, { node: "b", networks: [] }] },
    { cluster: "us", why: "unreachable", nodes: [{ node: "c", networks: [], status: status([tunnel("eu-1", "Unknown")]) }] },
  ]);
  expect(rows.map(({ from, peer }) => `${from} ${peer}`)).toEqual(["eu/a us-2", "us/c eu-1", "eu/a us-1"]);
});

test("what an agent said before it fell silent is not what is so now", () => {
  const status = { implementation: "kernel", mtu: 1420, peers: 1, unreachable: 0, tunnels: [tunnel("us-1", "Up")] };
  const [row] = rowsOf([{ cluster: "eu", nodes: [{ node: "a", networks: [], silentSince: "2026-01-01T00:00:00Z", status }] }]);
  expect(row?.state).toBe("Silent");
});
