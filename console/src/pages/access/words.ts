/** Rules of roles, in words. */
import type { Rule } from "../../api/schema";

/** One rule as a sentence. */
export function words({ clusters, namespaces, resources, verbs }: Rule): string {
  const all = (items: string[], every: string, one: string, many: string) => (items.includes("*") ? every : `${items.length > 1 ? many : one} ${items.join(", ")}`);
  const fleet = clusters.length === 1 && clusters[0] === "-";
  const does = verbs.includes("*") ? "do everything with" : verbs.join(", ");
  const what = resources.includes("*") ? "everything" : resources.join(", ");
  if (fleet) return `${does} ${what} of the fleet itself`;
  return `${does} ${what}, in ${all(namespaces, "all namespaces", "namespace", "namespaces")} of ${all(clusters, "all clusters", "cluster", "clusters")}`;
}
