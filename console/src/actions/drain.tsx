/** Drains nodes, one after the other, and says of each pod what becomes of it. */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import { ApiProblem, explain } from "../api/problem";
import type { Drained, ProblemBody } from "../api/schema";
import { t } from "../language";
import { confirm, Dialog } from "../parts/dialog";
import { wordTone } from "../parts/tone";
import type { ObjectPlace } from "../places";
import { counted, Places, route, typed } from "./actions";

interface PodProgress {
  namespace: string;
  name: string;
  outcome: "evicting" | "gone" | "blocked" | "failed" | "skipped";
  why?: string;
}

interface Progress {
  places: ObjectPlace[];
  /** By node. */
  pods: Map<string, Map<string, PodProgress>>;
  ends: Map<string, { drained?: Drained; failed?: string }>;
  stop: AbortController;
}

/** What is drained or was, until its dialog is closed. */
const draining = signal<Progress | null>(null);

const nodeKey = ({ cluster, name }: ObjectPlace): string => `${cluster}/${name}`;

async function drainOne(place: ObjectPlace, options: object, progress: Progress): Promise<void> {
  const pods = new Map<string, PodProgress>();
  progress.pods.set(nodeKey(place), pods);
  const end = (how: { drained?: Drained; failed?: string }) => {
    progress.ends.set(nodeKey(place), how);
    draining.value = draining.value && { ...draining.value };
  };
  try {
    await api.follow(
      route(place, "/drain"),
      options,
      ({ event, data }) => {
        if (event === "pod") {
          const pod = data as PodProgress;
          pods.set(`${pod.namespace}/${pod.name}`, pod);
          draining.value = draining.value && { ...draining.value };
        } else if (event === "done") end({ drained: data as Drained });
        else if (event === "problem") end({ failed: explain(new ApiProblem(data as ProblemBody)).sentence });
        else if (event === "end") end({ failed: String((data as { reason?: string }).reason ?? t("it was ended")) });
      },
      { headers: { "request-timeout": "5m" }, signal: progress.stop.signal },
    );
    if (!progress.ends.has(nodeKey(place))) end({ failed: t("The connection was lost; the node may be cordoned, and pods may still go.") });
  } catch (error) {
    end({ failed: progress.stop.signal.aborted ? t("Stopped. The node stays cordoned; pods that were evicted go.") : explain(error).sentence });
  }
}

export function drain(places: ObjectPlace[]): void {
  const options = { ignoreDaemonSets: true, deleteEmptyDirData: false, force: false };
  const box = (key: keyof typeof options, text: string) => (
    <label class="row">
      <input type="checkbox" class="check" defaultChecked={options[key]} onChange={(event) => { options[key] = event.currentTarget.checked; }} />
      {text}
    </label>
  );
  confirm({
    title: t("Drain {counted}?", { counted: counted(places, "nodes") }),
    text: <><p>{t("The node is cordoned, and its pods are evicted one by one, as disruption budgets allow.")}</p><Places places={places} /></>,
    fields: (
      <div class="stack">
        {box("ignoreDaemonSets", t("Leave pods of DaemonSets where they are"))}
        {box("deleteEmptyDirData", t("Evict pods although their emptyDir is lost"))}
        {box("force", t("Evict pods that nobody will start again"))}
      </div>
    ),
    verb: t("Drain"),
    danger: true,
    name: typed(places, "drain"),
    run: () => {
      const progress: Progress = { places, pods: new Map(), ends: new Map(), stop: new AbortController() };
      draining.value = progress;
      // One node at a time: the pods of the first may have gone to the second.
      void (async () => {
        for (const place of places) {
          if (progress.stop.signal.aborted) break;
          await drainOne(place, options, progress);
        }
      })();
    },
  });
}

const ORDER = ["failed", "blocked", "evicting", "gone", "skipped"];

export function DrainProgress() {
  const progress = draining.value;
  if (!progress) return null;
  const { places, pods, ends, stop } = progress;
  const over = places.every((place) => ends.has(nodeKey(place))) || stop.signal.aborted;
  return (
    <Dialog title={t("Draining")} wide onClose={() => { if (over) draining.value = null; }}>
      <form onSubmit={(event) => { event.preventDefault(); draining.value = null; }}>
        <h1>{over ? t("Drained") : t("Draining")} {counted(places, "nodes")}</h1>
        {places.map((place) => {
          const own = [...(pods.get(nodeKey(place))?.values() ?? [])].sort((a, b) => ORDER.indexOf(a.outcome) - ORDER.indexOf(b.outcome));
          const end = ends.get(nodeKey(place));
          const count = (outcome: string) => own.filter((one) => one.outcome === outcome).length;
          return (
            <section key={nodeKey(place)} class="stack" aria-label={t("Drain of {name}", { name: place.name })}>
              <p role="status" class={end?.failed || (end?.drained && !end.drained.drained) ? "bad-text" : end ? "ok-text" : ""}>
                <strong>{place.name}</strong>: {end?.failed ?? (end?.drained ? (end.drained.drained ? t("drained, {gone} pods went", { gone: end.drained.gone }) : t("{gone} pods went, {count} are left", { gone: end.drained.gone, count: end.drained.left.length })) : own.length ? t("{count} of {what} pods are gone", { count: count("gone"), what: own.length - count("skipped") }) : t("waits"))}
                {end?.drained?.skipped ? t(", {skipped} stay", { skipped: end.drained.skipped }) : ""}
              </p>
              <ul class="lines small drain-pods">
                {own.slice(0, 200).map((pod) => (
                  <li key={`${pod.namespace}/${pod.name}`}>
                    <span class={`dot ${pod.outcome === "gone" ? "ok" : pod.outcome === "evicting" ? "info" : pod.outcome === "skipped" ? "" : wordTone("failed")}`} />
                    <span class="grow break">{pod.namespace}/{pod.name}{pod.why && <span class="muted">: {pod.why}</span>}</span>
                    <span class="muted">{pod.outcome}</span>
                  </li>
                ))}
                {(end?.drained?.left ?? []).filter(({ namespace, name }) => !pods.get(nodeKey(place))?.has(`${namespace}/${name}`)).map(({ namespace, name, why }) => (
                  <li key={`${namespace}/${name}`}><span class="dot bad" /><span class="grow break">{namespace}/{name}<span class="muted">: {why}</span></span></li>
                ))}
              </ul>
            </section>
          );
        })}
        <footer>
          {!over && <button type="button" class="button" onClick={() => stop.abort()}>{t("Stop")}</button>}
          <button type="submit" class="button primary" disabled={!over}>{t("Close")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
