/**
 * The object's YAML: read-only first. An edit is tried by the API server before it is made, and shown as
 * the difference that it would make; a change by somebody else meanwhile is said, never overwritten.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { ApiProblem, asProblem, explain } from "../../api/problem";
import { t } from "../../language";
import { Diff } from "../../parts/diff";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";
import type { ObjectPlace } from "../../places";
import type { Editor } from "./editor";

type Mode = "read" | "edit" | "review";

interface Edited {
  outcome?: string;
  diff?: string;
  warnings?: string[];
}

export default function Yaml({ place, mayEdit, secret }: { place: ObjectPlace; mayEdit: boolean; secret: boolean }) {
  const route = path`/clusters/${place.cluster}/resources/${place.kind}/${place.name}`;
  const asked = { namespace: place.namespace };
  const [revealed, setRevealed] = useState(false);
  const read = useFetch(`${route} ${place.namespace ?? ""} ${String(revealed)}`, (signal) =>
    api.text(route, { query: { ...asked, reveal: revealed || null }, headers: { accept: "application/yaml" }, signal }),
  );
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const [mode, setMode] = useState<Mode>("read");
  const [base, setBase] = useState("");
  const [draft, setDraft] = useState("");
  const [answer, setAnswer] = useState<Edited | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [ready, setReady] = useState(false);

  useEffect(() => {
    let gone = false;
    void import("./editor").then(({ openEditor }) => {
      if (gone || !host.current) return;
      editor.current = openEditor(host.current, "", setDraft);
      setReady(true);
    });
    return () => {
      gone = true;
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);

  const text = read.data;
  useEffect(() => {
    if (!ready || mode !== "read" || text === undefined) return;
    editor.current?.setText(text);
  }, [ready, text, mode]);

  const edit = () => {
    if (text === undefined) return;
    setBase(text);
    setMode("edit");
    editor.current?.setText(text);
    editor.current?.setReadOnly(false);
    editor.current?.focus();
  };
  const stop = () => {
    setMode("read");
    setProblem(null);
    setAnswer(null);
    editor.current?.compareWith(null);
    editor.current?.setReadOnly(true);
    read.reload();
  };
  const back = () => {
    setMode("edit");
    editor.current?.compareWith(null);
    editor.current?.setReadOnly(false);
    editor.current?.focus();
  };
  const send = async (dryRun: boolean) => {
    setBusy(true);
    setProblem(null);
    try {
      const said = await api.upload<Edited>("PUT", route, editor.current?.text() ?? draft, "application/yaml", { query: { ...asked, dryRun } });
      if (dryRun) {
        setAnswer(said ?? {});
        setMode("review");
        editor.current?.setReadOnly(true);
      } else {
        toast(t("{name} is changed.{what}", { name: place.name, what: said?.warnings?.length ? ` ${t("The API server warns: {warnings}", { warnings: said.warnings.join(" ") })}` : "" }));
        stop();
      }
    } catch (error) {
      setProblem(error);
      if (asProblem(error).status === 409) back();
    } finally {
      setBusy(false);
    }
  };
  /** Puts what was written on the object as it is now, and shows the difference. */
  const newest = async () => {
    setBusy(true);
    try {
      const [fresh, { merge }] = await Promise.all([
        api.text(route, { query: { ...asked, reveal: revealed || null }, headers: { accept: "application/yaml" } }),
        import("./editor"),
      ]);
      const { text: merged, both } = merge(base, editor.current?.text() ?? draft, fresh);
      setBase(fresh);
      setProblem(null);
      editor.current?.setText(merged);
      editor.current?.compareWith(fresh);
      if (both) toast(t("{both} {what} changed by both: yours is kept there. Look at it before you apply.", { both, what: both === 1 ? t("place was") : t("places were") }), "info");
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };

  const conflict = problem instanceof ApiProblem && problem.status === 409;
  const changed = mode !== "read" && draft !== base;
  return (
    <>
      <div class="toolbar">
        {mode === "read" && (
          <>
            <span class="muted small">{t("Read only")}</span>
            {secret && (
              <button type="button" class="button" aria-pressed={revealed} onClick={() => setRevealed(!revealed)}>
                {revealed ? t("Hide values") : t("Show values")}
              </button>
            )}
            <button type="button" class="button quiet" disabled={text === undefined} onClick={() => void navigator.clipboard.writeText(text ?? "").then(() => toast(t("Copied.")))}>{t("Copy")}</button>
            <button type="button" class="button quiet" onClick={read.reload}>{t("Reload")}</button>
            <span class="grow" />
            {mayEdit && <button type="button" class="button" disabled={text === undefined || !ready} onClick={edit}>{t("Edit")}</button>}
          </>
        )}
        {mode === "edit" && (
          <>
            <span class="muted small">{changed ? t("Changed, and not applied") : t("Nothing is changed yet")}</span>
            <span class="grow" />
            <button type="button" class="button" onClick={stop}>{t("Cancel")}</button>
            <button type="button" class="button primary" disabled={!changed || busy} onClick={() => void send(true)}>{busy ? t("Trying…") : t("Review")}</button>
          </>
        )}
        {mode === "review" && (
          <>
            <span class="muted small">{answer?.diff ? t("The API server would take it. This is what it would change.") : t("The API server would change nothing.")}</span>
            <span class="grow" />
            <button type="button" class="button" onClick={back}>{t("Back")}</button>
            <button type="button" class="button primary" disabled={busy} onClick={() => void send(false)}>{busy ? t("Applying…") : t("Apply")}</button>
          </>
        )}
      </div>
      {read.problem && <ProblemNotice problem={read.problem} again={read.reload} />}
      {problem !== null && !conflict && <ProblemNotice problem={problem} />}
      {conflict && (
        <div class="notice warn" role="alert">
          <div class="grow break">
            <p>{explain(problem).sentence}</p>
            <p class="muted">{t("Nothing was overwritten. Your changes are kept: put them on the newest version, then review them again.")}</p>
          </div>
          <button type="button" class="button" disabled={busy} onClick={() => void newest()}>{t("Put them on the newest")}</button>
        </div>
      )}
      {mode === "review" && (answer?.warnings ?? []).map((warning) => <div key={warning} class="notice warn"><p>{warning}</p></div>)}
      {mode === "review" && <Diff class="fills diff" text={answer?.diff ?? ""} />}
      <div ref={host} class="fills" data-mode={mode} hidden={mode === "review"} />
    </>
  );
}
