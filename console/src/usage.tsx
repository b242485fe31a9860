/** What pods and nodes use, as a cluster's metrics server says, and how full that makes a node. */
import { api, path } from "./api/client";
import { useFetch } from "./api/fetching";
import { isAbort } from "./api/problem";
import type { NodeTaint } from "./api/schema";
import { decimal } from "./language";

export interface Usage {
  cpuMillis: number;
  memoryBytes: number;
}

export interface NodeFacts {
  name: string;
  taints: NodeTaint[];
  cordoned: boolean;
  allocatable: Usage;
}

/** By `cluster/namespace/name`, of nodes `cluster//name`. */
export type Facts<T> = Map<string, T>;

export const factKey = (cluster: string, namespace: string | null | undefined, name: string): string => `${cluster}/${namespace ?? ""}/${name}`;

/** The tables of kinds that have more than the API server's own columns are read anew this often. */
const EVERY = 15_000;
/** Nodes of one cluster whose taints are read: beyond that a table is not looked through by eye. */
const NODES = 1000;

const SCALE: Record<string, number> = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

/** A quantity of Kubernetes as a number: `250m`, `30Gi`, `1e3`. */
export function quantity(text: unknown): number {
  const found = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?$/.exec(String(text ?? ""));
  return found ? Number(found[1]) * (SCALE[found[2] ?? ""] ?? 1) : 0;
}

/** `250m`, `1.5`, `23`: cores. */
export function cores(millis: number): string {
  if (millis === 0) return "0";
  return millis < 1000 ? `${Math.round(millis)}m` : decimal(millis / 1000, millis < 10_000 ? 1 : 0, 0);
}

/** `256 MiB`. */
export function memory(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit < 3 || value >= 100 ? Math.round(value) : decimal(value, 1, 0)} ${units[unit]}`;
}

/** Reads a part of each cluster; a cluster that has it not, or does not answer, is left out. */
async function ofEach<T>(clusters: string[], read: (cluster: string) => Promise<[string, T][]>): Promise<Facts<T>> {
  const parts = await Promise.all(
    clusters.map((cluster) =>
      read(cluster).catch((error: unknown): [string, T][] => {
        if (isAbort(error)) throw error;
        return [];
      }),
    ),
  );
  return new Map(parts.flat());
}

/** The usage of pods or nodes of these clusters; empty where there is no metrics server. */
export function useUsage(clusters: string[], kind: string): Facts<Usage> | undefined {
  const asked = (kind === "pods" || kind === "nodes") && clusters.length > 0;
  return useFetch(
    asked ? `usage ${kind} ${clusters.join(",")}` : null,
    (signal) =>
      ofEach(clusters, async (cluster) => {
        const { usage } = await api.get<{ usage: ({ namespace?: string; name: string } & Usage)[] }>(path`/clusters/${cluster}/usage`, { query: { kind }, signal });
        return usage.map((one): [string, Usage] => [factKey(cluster, kind === "nodes" ? null : one.namespace, one.name), one]);
      }),
    EVERY,
  ).data;
}

interface NodeObject {
  metadata?: { name?: string };
  spec?: { taints?: NodeTaint[]; unschedulable?: boolean };
  status?: { allocatable?: Record<string, string> };
}

/** Taints and capacities of the nodes of these clusters. */
export function useNodes(clusters: string[], wanted: boolean): Facts<NodeFacts> | undefined {
  return useFetch(
    wanted && clusters.length ? `nodes ${clusters.join(",")}` : null,
    (signal) =>
      ofEach(clusters, async (cluster) => {
        const { items } = await api.get<{ items: NodeObject[] }>(path`/clusters/${cluster}/resources/nodes`, { query: { limit: NODES }, signal });
        return items.map(({ metadata, spec, status }): [string, NodeFacts] => {
          const name = metadata?.name ?? "";
          const { cpu, memory } = status?.allocatable ?? {};
          return [factKey(cluster, null, name), { name, taints: spec?.taints ?? [], cordoned: spec?.unschedulable === true, allocatable: { cpuMillis: quantity(cpu) * 1000, memoryBytes: quantity(memory) } }];
        });
      }),
    EVERY,
  ).data;
}

/** A part of a whole, drawn and said. */
export function Meter({ of, all, text, label }: { of: number; all: number; text: string; label: string }) {
  const part = all > 0 ? of / all : 0;
  const tone = part > 0.9 ? "bad" : part > 0.75 ? "warn" : "";
  return (
    <span class="meter-cell" title={all > 0 ? `${label}: ${text}, ${Math.round(part * 100)} %` : `${label}: ${text}`}>
      {all > 0 && <span class={`meter ${tone}`} aria-hidden="true"><span style={{ width: `${Math.min(100, part * 100)}%` }} /></span>}
      <span class="number">{text}</span>
    </span>
  );
}

/** The three effects of a taint, by how hard they are. */
export const EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

export const taintText = ({ key, value, effect }: NodeTaint): string => `${key}${value ? `=${value}` : ""}:${effect}`;

export function Taints({ of }: { of: NodeTaint[] }) {
  return (
    <span class="labels">
      {of.map((taint) => (
        <span key={taintText(taint)} class={`tag ${taint.effect === "NoExecute" ? "bad" : taint.effect === "NoSchedule" ? "warn" : ""}`} title={taintText(taint)}>
          <span class="clip">{taintText(taint)}</span>
        </span>
      ))}
    </span>
  );
}
