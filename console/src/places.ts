/** Addresses of things: one function for each page that others link to. */
import { href, segment } from "./router";

/** Stands for every cluster that one may see. */
export const ALL = "*";
/** Stands in the path for "no namespace", for objects that are in none. */
export const NO_NAMESPACE = "-";

export interface ObjectPlace {
  cluster: string;
  /** The plural name with its group: `pods`, `deployments.apps`. */
  kind: string;
  namespace?: string | null | undefined;
  name: string;
}

/** The page of one cluster. */
export function clusterPage(name: string, tab?: string): string {
  return href(`/c/${segment(name)}`, { tab });
}

export function explore(clusters: string[] | string, kind: string, query?: Record<string, string | null | undefined>): string {
  return href(`/c/${segment(typeof clusters === "string" ? clusters : joinClusters(clusters))}/${segment(kind)}`, query);
}

export function object(place: ObjectPlace, query?: Record<string, string | null | undefined>): string {
  const { cluster, kind, namespace, name } = place;
  const path = `/c/${segment(cluster)}/${segment(kind)}/${segment(namespace || NO_NAMESPACE)}/${segment(name)}`;
  return href(path, query);
}

/** The map of a namespace, around one object: `Deployment/web`. */
export function mapAround(cluster: string, namespace: string, id: string): string {
  return href("/map", { cluster, ns: namespace, at: id });
}

/** The doctor, asked about a pod. */
export function doctorOf({ cluster, namespace, name }: Pick<ObjectPlace, "cluster" | "namespace" | "name">): string {
  return href("/doctor", { cluster, namespace, pod: name });
}

/** The clusters of a path or a query: `*`, or names separated by commas. */
export function splitClusters(text: string | null | undefined): string[] {
  const names = (text ?? "").split(",").map((name) => name.trim()).filter(Boolean);
  return names.includes(ALL) || !names.length ? [ALL] : [...new Set(names)];
}

export function joinClusters(clusters: string[]): string {
  return !clusters.length || clusters.includes(ALL) ? ALL : clusters.join(",");
}
