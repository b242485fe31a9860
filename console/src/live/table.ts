/** What a table of objects follows: one function, so that it can begin before the table's code is there. */
import { ALL, splitClusters } from "../places";
import { match } from "../router";
import type { Subscription } from "./protocol";

export function tableSubscription(clusters: string[], kind: string, query: URLSearchParams): Subscription {
  const namespaces = (query.get("ns") ?? "").split(",").filter(Boolean);
  const [labels, fields] = [query.get("labels"), query.get("fields")];
  return {
    topic: "rows",
    clusters,
    kind,
    ...(namespaces.length ? { namespaces } : {}),
    ...(labels ? { labels } : {}),
    ...(fields ? { fields } : {}),
  };
}

/** What the page of an address follows, where the address alone says it. */
export function firstSubscription(path: string, query: URLSearchParams): Subscription | null {
  const table = match("/c/:clusters/:kind", path);
  const clusters = splitClusters(table?.["clusters"]);
  return table && !clusters.includes(ALL) ? tableSubscription(clusters, table["kind"] ?? "", query) : null;
}
