/** Creates or changes objects from YAML: tried by the API server and shown first, then applied. */
import { useEffect, useRef, useState } from "preact/hooks";
import { api, path } from "../../api/client";
import type { Answer } from "../../api/schema";
import { clusters } from "../../fleet";
import { t } from "../../language";
import { Diff } from "../../parts/diff";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";
import { query, setQuery } from "../../router";
import type { Editor } from "../object/editor";
import { NO_NAMESPACE } from "../../places";
import { withoutIdentity } from "./clone";
import { TEMPLATES, template } from "./templates";
import "../object/object.css";

/** The YAML of an object without what is its own alone. */
async function clone(from: string): Promise<string> {
  const [cluster = "", kind = "", namespace = "", ...rest] = from.split("/");
  const route = path`/clusters/${cluster}/resources/${kind}/${rest.join("/")}`;
  return withoutIdentity(await api.text(route, { query: { namespace: namespace === NO_NAMESPACE ? null : namespace }, headers: { accept: "application/yaml" } }));
}

export default function Create() {
  const names = clusters.value.filter(({ state }) => state === "ready" || state === "degraded").map(({ name }) => name);
  const cluster = query.value.get("cluster") ?? names[0] ?? "";
  const namespace = query.value.get("ns") ?? "";
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const [ready, setReady] = useState(false);
  const [busy, setBusy] = useState(false);
  const [tried, setTried] = useState<Answer | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [over, setOver] = useState(false);

  useEffect(() => {
    let gone = false;
    void import("../object/editor").then(({ openEditor }) => {
      if (gone || !host.current) return;
      const from = query.value.get("from");
      editor.current = openEditor(host.current, from ? "" : template(query.value.get("kind") ?? "", query.value.get("ns") ?? ""), () => setTried(null));
      editor.current.setReadOnly(false);
      if (!from) return setReady(true);
      void clone(from).then(
        (text) => {
          editor.current?.setText(text);
          setReady(true);
        },
        (error: unknown) => setProblem(error),
      );
    });
    return () => {
      gone = true;
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);

  const send = async (dryRun: boolean) => {
    setBusy(true);
    setProblem(null);
    try {
      const answer = await api.upload<Answer>("POST", path`/clusters/${cluster}/apply`, editor.current?.text() ?? "", "application/yaml", { query: { namespace, dryRun } });
      setTried(dryRun ? answer : null);
      if (!dryRun) {
        const failed = answer.results.filter(({ outcome }) => outcome === "failed").length;
        toast(failed ? t("{failed} of {count} failed.", { failed, count: answer.results.length }) : `${answer.results.map(({ kind, name, outcome }) => `${kind} ${name} ${outcome}`).join(", ")}.`, failed ? "bad" : undefined);
        if (failed) setTried(answer);
      }
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  const take = async (file: File | undefined) => {
    if (file) editor.current?.setText(await file.text());
  };
  const failed = tried?.results.some(({ outcome }) => outcome === "failed") ?? false;
  return (
    <div
      class={`page full${over ? " dropping" : ""}`}
      onDragOver={(event) => { event.preventDefault(); setOver(true); }}
      onDragLeave={(event) => { if (event.currentTarget === event.target) setOver(false); }}
      onDrop={(event) => { event.preventDefault(); setOver(false); void take(event.dataTransfer?.files[0]); }}
    >
      <header>
        <h1>{t("Create")}</h1>
        <select class="select" aria-label={t("Cluster")} value={cluster} onChange={(event) => setQuery({ cluster: event.currentTarget.value })}>
          {[...new Set([...names, cluster])].filter(Boolean).map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <input class="field" aria-label={t("Namespace of objects that name none")} placeholder={t("namespace: default")} spellcheck={false} value={namespace} onInput={(event) => setQuery({ ns: event.currentTarget.value })} />
        <select class="select" aria-label={t("Template")} value="" onChange={(event) => editor.current?.setText(template(event.currentTarget.value, namespace))}>
          <option value="">{t("From a template…")}</option>
          {Object.keys(TEMPLATES).map((kind) => <option key={kind} value={kind}>{kind}</option>)}
        </select>
        <span class="grow" />
        <button type="button" class="button" disabled={!ready || busy || !cluster} onClick={() => void send(true)}>{busy ? t("Trying…") : t("Review")}</button>
        <button type="button" class="button primary" disabled={!tried || failed || busy} title={tried ? "" : t("Review it first")} onClick={() => void send(false)}>{t("Apply")}</button>
      </header>
      {problem !== null && <ProblemNotice problem={problem} />}
      {tried?.results.map((one) => (
        <details key={`${one.kind} ${one.namespace} ${one.name}`} open={tried.results.length < 4} class={`notice ${one.outcome === "failed" ? "bad" : "info"}`}>
          <summary>{one.outcome === "failed" ? t("would fail") : one.outcome === "created" ? t("would be created") : one.outcome === "unchanged" ? t("would not change") : t("would change")}: {one.kind} {one.namespace ? `${one.namespace}/` : ""}{one.name}</summary>
          {one.problem && <p class="bad-text break">{one.problem.detail ?? one.problem.title}</p>}
          {(one.warnings ?? []).map((text) => <p key={text} class="warn-text break">{text}</p>)}
          {one.diff && one.outcome !== "created" && <Diff text={one.diff} />}
        </details>
      ))}
      <div ref={host} class="fills" data-mode="edit" />
    </div>
  );
}
