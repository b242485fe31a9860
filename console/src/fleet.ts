/** What every page knows of the fleet: its clusters, live, and the kinds that each serves. */
import { computed, effect, signal } from "@preact/signals";
import { api, path } from "./api/client";
import { askWho, session } from "./api/session";
import type { Cluster, Clusters, Kind, Kinds, ProblemBody } from "./api/schema";
import { follow } from "./live/live";
import { ALL } from "./places";

export const fleet = signal<Clusters | null>(null);
export const fleetProblem = signal<ProblemBody | null>(null);

export const clusters = computed<Cluster[]>(() => fleet.value?.clusters ?? []);

export function cluster(name: string): Cluster | undefined {
  return clusters.value.find((one) => one.name === name);
}

/** The names that a selection stands for. */
export function resolve(selection: string[]): string[] {
  return selection.includes(ALL) ? clusters.value.map(({ name }) => name) : selection;
}

export type Tone = "ok" | "warn" | "bad" | "info" | "";

export function clusterTone(state: string): Tone {
  switch (state.toLowerCase()) {
    case "ready":
    case "live":
      return "ok";
    case "connecting":
    case "degraded":
    case "stale":
      return "warn";
    case "disabled":
    case "":
      return "";
    default:
      return "bad";
  }
}

/** Follows the fleet for as long as somebody is logged in. */
export function startFleet(): void {
  let close: (() => void) | null = null;
  effect(() => {
    const inside = session.value.state === "in";
    if (inside && !close) {
      close = follow({ topic: "clusters" }, (message) => {
        if (message.type === "data") {
          fleet.value = message.data as Clusters;
          fleetProblem.value = null;
        } else if (message.type === "end") {
          fleetProblem.value = message.problem ?? null;
          if (message.problem?.status === 401) void askWho();
        }
      });
    } else if (!inside && close) {
      close();
      close = null;
      fleet.value = null;
    }
  });
}

const known = new Map<string, Promise<Kind[]>>();

/** The kinds that a cluster serves. Kept for the life of the page; a failure is not. */
export function kindsOf(name: string): Promise<Kind[]> {
  let found = known.get(name);
  if (!found) {
    found = api.get<Kinds>(path`/clusters/${name}/kinds`).then(({ kinds }) => kinds);
    found.catch(() => known.delete(name));
    known.set(name, found);
  }
  return found;
}

export function forgetKinds(name: string): void {
  known.delete(name);
}

/** A kind's name in addresses: `pods`, `deployments.apps`. */
export function kindPath(kind: Kind): string {
  return kind.group ? `${kind.name}.${kind.group}` : kind.name;
}

/** The kind of an address among those of a cluster, by plural name, with or without group. */
export function findKind(kinds: Kind[], wanted: string): Kind | undefined {
  return kinds.find((kind) => kindPath(kind) === wanted) ?? kinds.find((kind) => kind.name === wanted || kind.shortNames.includes(wanted));
}
