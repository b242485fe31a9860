/** What can be done with objects. Each asks first, says what came of it, and needs a permission. */
import { signal } from "@preact/signals";
import { api, path } from "../api/client";
import { can, useCan, type Ask } from "../api/session";
import { explain } from "../api/problem";
import type { Deleted, Restarted, Scaled } from "../api/schema";
import { t } from "../language";
import { confirm } from "../parts/dialog";
import { toast } from "../parts/toast";
import type { ObjectPlace } from "../places";

export type Verb = "delete" | "restart" | "scale" | "cordon" | "drain" | "update" | "exec" | "log";

const RESTARTS = ["deployments.apps", "statefulsets.apps", "daemonsets.apps"];
const SCALES = ["deployments.apps", "statefulsets.apps", "replicasets.apps", "replicationcontrollers"];

/** The verbs that make sense for a kind. */
export function verbsOf(kind: string): Verb[] {
  return [
    ...(SCALES.includes(kind) ? (["scale"] as const) : []),
    ...(RESTARTS.includes(kind) ? (["restart"] as const) : []),
    ...(kind === "nodes" ? (["cordon", "drain"] as const) : []),
    ...(kind === "pods" ? (["log", "exec"] as const) : []),
    "update",
    "delete",
  ];
}

function asksFor(places: ObjectPlace[], verb: Verb): Ask[] {
  const asks = new Map<string, Ask>();
  for (const { cluster, namespace, kind } of places) {
    asks.set(`${cluster}\n${namespace ?? ""}`, { cluster, namespace: namespace || null, resource: kind, verb });
  }
  return [...asks.values()];
}

/** The verbs that one may use on all of `places`, which are of one kind. */
export function useVerbs(kind: string, places: ObjectPlace[]): Set<Verb> {
  const verbs = verbsOf(kind);
  const asks = verbs.map((verb) => asksFor(places, verb));
  const answers = useCan(asks.flat());
  const may = new Set<Verb>();
  let from = 0;
  verbs.forEach((verb, index) => {
    const own = asks[index] as Ask[];
    if (own.length && answers.slice(from, from + own.length).every(Boolean)) may.add(verb);
    from += own.length;
  });
  return may;
}

export const mayAll = (places: ObjectPlace[], verb: Verb): Promise<boolean> =>
  Promise.all(asksFor(places, verb).map(can)).then((all) => all.every(Boolean));

export function route({ cluster, kind, name }: ObjectPlace, action = ""): string {
  return path`/clusters/${cluster}/resources/${kind}/${name}` + action;
}

function where({ cluster, namespace, name }: ObjectPlace): string {
  return [cluster, namespace, name].filter(Boolean).join(" / ");
}

/** At most this many at once: a cluster's gate would make the others wait anyway. */
const AT_ONCE = 6;

/** Does something to each of many; reports the failures together. */
async function each(places: ObjectPlace[], done: string, run: (place: ObjectPlace) => Promise<string | void>): Promise<void> {
  const failures: string[] = [];
  const notes: string[] = [];
  const rest = [...places];
  const work = async () => {
    for (let place = rest.shift(); place; place = rest.shift()) {
      try {
        const note = await run(place);
        if (note) notes.push(note);
      } catch (error) {
        if (places.length === 1) throw error;
        failures.push(`${where(place)}: ${explain(error).sentence}`);
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, places.length) }, work));
  const fine = places.length - failures.length;
  if (fine) toast(places.length === 1 ? `${places[0]?.name ?? ""} ${done}.${notes[0] ? ` ${notes[0]}` : ""}` : `${fine} ${done}.`);
  if (failures.length) toast(t("{count} of {count2} failed. {failures}", { count: failures.length, count2: places.length, failures: failures.slice(0, 3).join(" ") }), "bad");
}

export function Places({ places }: { places: ObjectPlace[] }) {
  return (
    <ul class="small muted break" style={{ maxHeight: "180px", overflow: "auto" }}>
      {places.slice(0, 50).map((place) => (
        <li key={where(place)}>{where(place)}</li>
      ))}
      {places.length > 50 && <li>{t("and {what} more", { what: places.length - 50 })}</li>}
    </ul>
  );
}

export function counted(places: ObjectPlace[], kind: string): string {
  return places.length === 1 ? (places[0]?.name ?? "") : `${places.length} ${kind.split(".")[0] ?? kind}`;
}

/** What must be typed: the name of one, the number of many. */
export function typed(places: ObjectPlace[], verb: string): string {
  return places.length === 1 ? (places[0]?.name ?? "") : `${verb} ${places.length}`;
}

export function remove(places: ObjectPlace[], kind: string, then?: () => void): void {
  const orphan = signal(false);
  confirm({
    title: t("Delete {counted}?", { counted: counted(places, kind) }),
    text: <><p>{t("Deleting cannot be undone.")}</p><Places places={places} /></>,
    fields: (
      <label class="row">
        <input type="checkbox" class="check" onChange={(event) => { orphan.value = event.currentTarget.checked; }} />
        {t("Keep what it owns")}
      </label>
    ),
    verb: t("Delete"),
    danger: true,
    name: typed(places, "delete"),
    run: async () => {
      await each(places, "deleted", async (place) => {
        const { finalizers } = await api.delete<Deleted>(route(place), {
          query: { namespace: place.namespace, propagation: orphan.value ? "Orphan" : null },
        });
        return finalizers?.length ? t("It goes when its finalizers are done: {finalizers}.", { finalizers: finalizers.join(", ") }) : undefined;
      });
      then?.();
    },
  });
}

export function restart(places: ObjectPlace[], kind: string): void {
  confirm({
    title: t("Restart {counted}?", { counted: counted(places, kind) }),
    text: <><p>{t("New pods replace the old ones, by the strategy of the workload.")}</p><Places places={places} /></>,
    verb: t("Restart"),
    run: () => each(places, "restarting", async (place) => {
      await api.post<Restarted>(route(place, "/restart"), undefined, { query: { namespace: place.namespace } });
    }),
  });
}

export function scale(places: ObjectPlace[], kind: string, present: number | null): void {
  const replicas = signal(present ?? 1);
  confirm({
    title: t("Scale {counted}", { counted: counted(places, kind) }),
    text: <Places places={places} />,
    fields: (
      <label class="label">
        {t("Replicas")}
        <input
          class="field number"
          type="number"
          min={0}
          max={100000}
          required
          autofocus
          defaultValue={String(replicas.value)}
          onInput={(event) => { replicas.value = event.currentTarget.valueAsNumber; }}
        />
      </label>
    ),
    verb: t("Scale"),
    run: () => each(places, t("scaled to {value}", { value: replicas.value }), async (place) => {
      const { was } = await api.post<Scaled>(route(place, "/scale"), { replicas: replicas.value }, { query: { namespace: place.namespace } });
      return t("It had {was}.", { was });
    }),
  });
}

export function cordon(places: ObjectPlace[], on: boolean): void {
  confirm({
    title: on ? t("Cordon {counted}?", { counted: counted(places, "nodes") }) : t("Uncordon {counted}?", { counted: counted(places, "nodes") }),
    text: <><p>{on ? t("No new pods come to it; those that run stay.") : t("Pods may come to it again.")}</p><Places places={places} /></>,
    verb: on ? t("Cordon") : t("Uncordon"),
    run: () => each(places, on ? "cordoned" : "uncordoned", async (place) => {
      await api.post(route(place, on ? "/cordon" : "/uncordon"));
    }),
  });
}

/** Runs a CronJob now. */
export function trigger(place: ObjectPlace): void {
  confirm({
    title: t("Run {name} now?", { name: place.name }),
    text: <p>{t("A Job is made of it, as its schedule would.")}</p>,
    verb: t("Run"),
    run: async () => {
      const { job } = await api.post<{ job: string }>(route(place, "/trigger"), undefined, { query: { namespace: place.namespace } });
      toast(t("The Job {job} runs.", { job }));
    },
  });
}

export function suspend(place: ObjectPlace, on: boolean): void {
  confirm({
    title: on ? t("Suspend {name}?", { name: place.name }) : t("Resume {name}?", { name: place.name }),
    text: <p>{on ? t("It makes no Jobs until it is resumed; those that run go on.") : t("It makes Jobs by its schedule again.")}</p>,
    verb: on ? t("Suspend") : t("Resume"),
    run: async () => {
      await api.post(route(place, on ? "/suspend" : "/resume"), undefined, { query: { namespace: place.namespace } });
      toast(on ? t("{name} is suspended.", { name: place.name }) : t("{name} is resumed.", { name: place.name }));
    },
  });
}
