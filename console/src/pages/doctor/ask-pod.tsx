/** A form to ask a pod for its profiles; the address may say which. */
import { useState } from "preact/hooks";
import { useCan } from "../../api/session";
import { clusters } from "../../fleet";
import { rich, t } from "../../language";
import { query, setQuery } from "../../router";

export interface PodAsked {
  cluster: string;
  namespace: string;
  pod: string;
  port: number | null;
}

export function AskPod({ busy, onAsk }: { busy: boolean; onAsk: (asked: PodAsked) => void }) {
  const names = clusters.value.filter(({ state }) => state === "ready" || state === "degraded").map(({ name }) => name);
  const cluster = query.value.get("cluster") ?? names[0] ?? "";
  const namespace = query.value.get("namespace") ?? "";
  const pod = query.value.get("pod") ?? "";
  const [port, setPort] = useState("");
  const [may, mayIn] = useCan([
    { cluster, namespace: namespace || "*", resource: "pods", verb: "forward" },
    { cluster, namespace: namespace || "*", resource: "pods", verb: "get" },
  ]);
  return (
    <section class="card" aria-label={t("Ask a pod")}>
      <header><h2>{t("Ask a pod")}</h2></header>
      <form
        class="body stack"
        onSubmit={(event) => {
          event.preventDefault();
          onAsk({ cluster, namespace, pod, port: port ? Number(port) : null });
        }}
      >
        <p class="muted">{rich("A pod that serves Go's profiles ({code}) is asked for its goroutines, twice, through its API server. Nothing in it changes.", { code: <code>/debug/pprof</code> })}</p>
        <div class="row wrap">
          <label class="label">{t("Cluster")}<select class="select" value={cluster} onChange={(event) => setQuery({ cluster: event.currentTarget.value })}>{[...new Set([...names, cluster])].filter(Boolean).map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
          <label class="label">Namespace<input class="field" required spellcheck={false} value={namespace} onInput={(event) => setQuery({ namespace: event.currentTarget.value })} /></label>
          <label class="label">Pod<input class="field" required spellcheck={false} value={pod} onInput={(event) => setQuery({ pod: event.currentTarget.value })} /></label>
          <label class="label">{t("Port")}<input class="field" style={{ width: "130px" }} type="number" min={1} max={65535} placeholder={t("the usual")} value={port} onInput={(event) => setPort(event.currentTarget.value)} /></label>
        </div>
        <div class="row">
          <button type="submit" class="button primary" disabled={busy || !may || !mayIn}>{busy ? t("Asking…") : t("Ask it")}</button>
          {!may && !busy && <span class="muted">{t("Your roles do not let you forward to pods there.")}</span>}
        </div>
      </form>
    </section>
  );
}
