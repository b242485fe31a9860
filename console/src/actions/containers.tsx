/** Edits images, environment, requests and limits of a workload without its YAML: tried, shown, then applied. */
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Edited } from "../api/schema";
import { t } from "../language";
import type { KubeObject } from "../pages/object/kube";
import { Dialog } from "../parts/dialog";
import { Diff } from "../parts/diff";
import { ProblemNotice } from "../parts/problem";
import { toast, toastProblem } from "../parts/toast";
import type { ObjectPlace } from "../places";
import { route } from "./actions";
import { readEdits, RESOURCES, withEdits, type ContainerEdit } from "./container-edits";

const editing = signal<{ place: ObjectPlace; object: KubeObject; then: () => void } | null>(null);

/** Reads the object as it is now, and opens the editor on it. */
export async function editContainers(place: ObjectPlace, then: () => void): Promise<void> {
  try {
    const object = await api.get<KubeObject>(route(place), { query: { namespace: place.namespace } });
    editing.value = { place, object, then };
  } catch (error) {
    toastProblem(error, place.name);
  }
}

export function ContainersEditor() {
  const of = editing.value;
  return of && <Editor key={of.place.name} place={of.place} object={of.object} onClose={(changed) => { editing.value = null; if (changed) of.then(); }} />;
}

function Editor({ place, object, onClose }: { place: ObjectPlace; object: KubeObject; onClose: (changed: boolean) => void }) {
  const [edits, setEdits] = useState(() => readEdits(object));
  const [tried, setTried] = useState<Edited | null>(null);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const change = (at: number, part: Partial<ContainerEdit>) => setEdits((old) => old.map((one, index) => (index === at ? { ...one, ...part } : one)));
  const send = async (event: Event) => {
    event.preventDefault();
    const dryRun = tried === null;
    setBusy(true);
    setProblem(null);
    try {
      const said = await api.upload<Edited>("PUT", route(place), JSON.stringify(withEdits(object, edits)), "application/yaml", { query: { namespace: place.namespace, dryRun } });
      if (dryRun) setTried(said);
      else {
        toast(t("{name} is changed.", { name: place.name }));
        onClose(true);
      }
    } catch (error) {
      setTried(null);
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={t("Containers of {name}", { name: place.name })} wide onClose={() => onClose(false)}>
      <form onSubmit={(event) => void send(event)}>
        <h1 class="break">{t("Containers of {name}", { name: place.name })}</h1>
        {tried ? (
          <>
            <p class="muted">{tried.diff ? t("The API server would take it. This is what it would change.") : t("The API server would change nothing.")}</p>
            {(tried.warnings ?? []).map((warning) => <div key={warning} class="notice warn"><p>{warning}</p></div>)}
            {tried.diff && <Diff text={tried.diff} />}
          </>
        ) : (
          edits.map((edit, at) => <One key={`${edit.name} ${String(edit.init)}`} edit={edit} onChange={(part) => change(at, part)} />)
        )}
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => (tried ? setTried(null) : onClose(false))}>{tried ? t("Back") : t("Cancel")}</button>
          <button type="submit" class="button primary" disabled={busy || (tried !== null && !tried.diff)}>{busy ? t("Working…") : tried ? t("Apply") : t("Review")}</button>
        </footer>
      </form>
    </Dialog>
  );
}

function One({ edit, onChange }: { edit: ContainerEdit; onChange: (part: Partial<ContainerEdit>) => void }) {
  const setEnv = (at: number, part: { name?: string; value?: string }) => onChange({ env: edit.env.map((one, index) => (index === at ? { ...one, ...part } : one)) });
  return (
    <fieldset class="stack container-edit">
      <legend><strong>{edit.name}</strong> {edit.init && <span class="tag">init</span>}</legend>
      <label class="label">{t("Image")}<input class="field mono" required spellcheck={false} value={edit.image} onInput={(event) => onChange({ image: event.currentTarget.value })} /></label>
      <div class="row wrap">
        {RESOURCES.map((path) => (
          <label key={path} class="label">
            {path.replace(".", " ")}
            <input class="field number" placeholder={t("none")} pattern="[0-9.]+([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?" title="250m, 1.5, 256Mi" spellcheck={false} value={edit.resources[path] ?? ""} onInput={(event) => onChange({ resources: { ...edit.resources, [path]: event.currentTarget.value } })} />
          </label>
        ))}
      </div>
      <div class="stack">
        <span class="muted">{t("Environment")}</span>
        {edit.env.map((one, at) => (
          <div key={at} class="row">
            <input class="field mono" aria-label={t("Variable")} placeholder="NAME" spellcheck={false} readOnly={one.from !== undefined} value={one.name} onInput={(event) => setEnv(at, { name: event.currentTarget.value })} />
            {one.from !== undefined ? <span class="grow muted clip">{t("from {from}", { from: one.from })}</span> : <input class="field mono grow" aria-label={t("Value of {name}", { name: one.name || t("the variable") })} spellcheck={false} value={one.value} onInput={(event) => setEnv(at, { value: event.currentTarget.value })} />}
            <button type="button" class="button quiet" aria-label={t("Remove {name}", { name: one.name || t("the variable") })} onClick={() => onChange({ env: edit.env.filter((_, index) => index !== at) })}>✕</button>
          </div>
        ))}
        <div class="row"><button type="button" class="button" onClick={() => onChange({ env: [...edit.env, { name: "", value: "" }] })}>{t("Add a variable")}</button></div>
      </div>
    </fieldset>
  );
}
