import type { EffectiveRight } from "../../api/schema";

/** Rights that are the same in several clusters, told once. */
export function byClusters(rights: EffectiveRight[]): { clusters: string[]; resource: string; everywhere: string[]; somewhere: string[] }[] {
  const rows = new Map<string, { clusters: string[]; resource: string; everywhere: string[]; somewhere: string[] }>();
  for (const { cluster, resource, everywhere, somewhere = [] } of rights) {
    const key = JSON.stringify([resource, everywhere, somewhere]);
    const row = rows.get(key) ?? { clusters: [], resource, everywhere, somewhere };
    row.clusters.push(cluster);
    rows.set(key, row);
  }
  return [...rows.values()];
}
