/** What the sidebar offers. A kind that is pinned is kept in this browser. */
import { signal } from "@preact/signals";
import { t } from "./language";
import { address } from "./router";
import { ALL, joinClusters, splitClusters } from "./places";

export interface KindLink {
  /** As in addresses. */
  kind: string;
  title: string;
}

export interface PageLink {
  path: string;
  title: string;
}

/** Kinds by what they are for; those that a cluster does not serve are found by `:`. */
export const kinds: { title: string; kinds: KindLink[] }[] = [
  {
    title: t("Workloads"),
    kinds: [
      { kind: "pods", title: "Pods" },
      { kind: "deployments.apps", title: "Deployments" },
      { kind: "statefulsets.apps", title: "StatefulSets" },
      { kind: "daemonsets.apps", title: "DaemonSets" },
      { kind: "jobs.batch", title: "Jobs" },
      { kind: "cronjobs.batch", title: "CronJobs" },
    ],
  },
  {
    title: t("Network"),
    kinds: [
      { kind: "services", title: "Services" },
      { kind: "ingresses.networking.k8s.io", title: "Ingresses" },
      { kind: "networkpolicies.networking.k8s.io", title: "NetworkPolicies" },
    ],
  },
  {
    title: t("Configuration"),
    kinds: [
      { kind: "configmaps", title: "ConfigMaps" },
      { kind: "secrets", title: "Secrets" },
      { kind: "persistentvolumeclaims", title: t("Volume claims") },
    ],
  },
  {
    title: t("Cluster"),
    kinds: [
      { kind: "nodes", title: "Nodes" },
      { kind: "namespaces", title: "Namespaces" },
    ],
  },
];

/** Pages beside those of the kinds. A page that is added to `routes.ts` is linked here. */
export const pageLinks: { title: string; pages: PageLink[] }[] = [
  {
    title: "",
    pages: [
      { path: "/", title: t("Fleet") },
      { path: "/search", title: t("Search") },
      { path: "/map", title: t("Map") },
      { path: "/events", title: t("Events") },
    ],
  },
  {
    title: t("Evidence"),
    pages: [
      { path: "/traffic", title: t("Traffic") },
      { path: "/mesh", title: t("Mesh") },
      { path: "/policies", title: t("Policies") },
      { path: "/admission", title: t("Admission") },
      { path: "/images", title: t("Images") },
      { path: "/net", title: t("Net") },
    ],
  },
  {
    title: "Fairlead",
    pages: [
      { path: "/now", title: t("Now") },
      { path: "/doctor", title: t("Doctor") },
      { path: "/receivers", title: t("Receivers") },
      { path: "/replay", title: t("Replay") },
      { path: "/access", title: t("Access") },
    ],
  },
];

const KEY = "fairlead.pins";

function stored(): KindLink[] {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(value) ? value.filter((one): one is KindLink => typeof one?.kind === "string" && typeof one?.title === "string") : [];
  } catch {
    return [];
  }
}

export const pins = signal<KindLink[]>(stored());

export function isPinned(kind: string): boolean {
  return pins.value.some((one) => one.kind === kind) || kinds.some((group) => group.kinds.some((one) => one.kind === kind));
}

export function togglePin(link: KindLink): void {
  const without = pins.value.filter((one) => one.kind !== link.kind);
  pins.value = without.length === pins.value.length ? [...without, link] : without;
  try {
    localStorage.setItem(KEY, JSON.stringify(pins.value));
  } catch {
    // A browser that keeps nothing: the pin holds for this tab.
  }
}

let last = [ALL];

/**
 * The clusters that this tab is about: those of the address, or the last that one of this tab had.
 * Never another tab's.
 */
export function selection(): string[] {
  const { path, query } = address.value;
  const inPath = /^\/c\/([^/]+)/.exec(path)?.[1];
  const inQuery = query.get("clusters");
  if (inPath) last = splitClusters(decodeURIComponent(inPath));
  else if (inQuery) last = splitClusters(inQuery);
  return last;
}

/** The address of the page at hand for other clusters. */
export function withClusters(clusters: string[]): string {
  last = clusters;
  const { path, query } = address.value;
  const table = /^\/c\/[^/]+\/([^/]+)(\/.*)?$/.exec(path);
  const next = new URLSearchParams(query);
  if (table) {
    // An object is one cluster's: its kind in the others is what is asked for.
    if (table[2]) return `/c/${encodeURIComponent(joinClusters(clusters)).replaceAll("%2C", ",")}/${table[1]}`;
    const text = next.toString();
    return `/c/${encodeURIComponent(joinClusters(clusters)).replaceAll("%2C", ",")}/${table[1]}${text ? `?${text}` : ""}`;
  }
  if (clusters.includes(ALL)) next.delete("clusters");
  else next.set("clusters", joinClusters(clusters));
  const text = next.toString().replaceAll("%2C", ",");
  return path + (text ? `?${text}` : "");
}
