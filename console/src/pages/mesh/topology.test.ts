import { expect, test } from "vitest";
import { topology } from "./topology";

test("a line stands for the tunnels between two clusters, whichever end tells of them", () => {
  const tunnel = (from: string, peer: string, state: string) => ({ from, peer, state, receivedBytes: 0, sentBytes: 0, observed: undefined });
  const { nodes, lines } = topology(["eu", "us", "ap"], [tunnel("eu/a", "prod--us--b", "Up"), tunnel("us/b", "prod--eu--a", "Down"), tunnel("eu/a", "prod--external--laptop", "Up"), tunnel("eu/a", "prod--eu--c", "Up")]);
  expect(nodes.map(({ name }) => name)).toEqual(["eu", "us", "ap"]);
  expect(lines.map(({ from, to, up, down }) => [from.name, to.name, up, down])).toEqual([["eu", "us", 1, 1]]);
});
