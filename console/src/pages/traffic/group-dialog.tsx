/** Makes a group, or changes one: its mode, and what is in it. Asked for once more where it may stop traffic. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import type { GroupLine } from "../../api/schema";
import { t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";
import { KEYS, OPS, parseCriterion, type Criterion } from "./criteria";

const MODES: [string, string][] = [
  ["", t("as its members' other groups, or the default")],
  ["discover", t("discover: what no rule decides is learned")],
  ["monitor", t("monitor: what no rule allows is reported")],
  ["protect", t("protect: what no rule allows is a violation")],
];

/** What a group consists of, where all of it can be told; null where some of it is not understood here. */
export function criteriaOf({ criteria = [] }: GroupLine): Criterion[] | null {
  const read = criteria.map(parseCriterion);
  return read.every((one): one is Criterion => one !== null) ? read : null;
}

/** What a learned group would be as a made one: the pods of its owner. */
function likeLearned(name: string): Criterion[] {
  const [namespace = "", , owner = ""] = name.split("/");
  return [{ key: "namespace", op: "=", value: namespace }, { key: "name", op: "prefix", value: `${owner}-` }];
}

export function GroupDialog({ group, onClose }: { group: GroupLine | null; onClose: (changed: boolean) => void }) {
  const made = group?.origin === "made";
  const [name, setName] = useState(made ? group.name : "");
  const [mode, setMode] = useState(group?.mode ?? "");
  const [comment, setComment] = useState(group?.comment ?? "");
  const [criteria, setCriteria] = useState<Criterion[]>(made ? (criteriaOf(group) ?? []) : group ? likeLearned(group.name) : [{ key: "namespace", op: "=", value: "" }]);
  const [sure, setSure] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const change = (at: number, part: Partial<Criterion>) => setCriteria((old) => old.map((one, index) => {
    if (index !== at) return one;
    const next = { ...one, ...part };
    if (next.key === "label" || next.key === "namespaceLabel") next.label ??= "";
    else delete next.label;
    return next;
  }));
  const stricter = mode === "protect" && group?.mode !== "protect";
  const save = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      await api.put(path`/guard/groups/${name}`, { spec: { criteria, ...(mode ? { mode } : {}), ...(comment ? { comment } : {}) } });
      toast(made ? t("The group {name} is changed.", { name }) : t("The group {name} is made.", { name }));
      onClose(true);
    } catch (error) {
      setProblem(error);
    }
  };
  const title = made ? t("Group {name}", { name: group.name }) : t("Make a group");
  return (
    <Dialog title={title} wide onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        <h1 class="break">{title}</h1>
        {!made && <label class="label">{t("Name")}<input class="field" required pattern="[a-z0-9]([\-a-z0-9]*[a-z0-9])?" title={t("small letters, digits and dashes")} value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>}
        <label class="label">
          {t("Mode")}
          <select class="select" value={mode} onChange={(event) => { setMode(event.currentTarget.value); setSure(false); }}>
            {MODES.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
          </select>
        </label>
        <fieldset class="stack">
          <legend class="muted">{t("Criteria: those of different keys must all hold, of the same key one of them")}</legend>
          {criteria.map((criterion, at) => (
            <div key={at} class="row wrap">
              <select class="select" aria-label={t("Key")} value={criterion.key} onChange={(event) => change(at, { key: event.currentTarget.value })}>{KEYS.map((key) => <option key={key} value={key}>{key}</option>)}</select>
              {criterion.label !== undefined && <input class="field" aria-label={t("Label")} placeholder="label" required value={criterion.label} onInput={(event) => change(at, { label: event.currentTarget.value })} />}
              <select class="select" aria-label={t("Operator")} value={criterion.op} onChange={(event) => change(at, { op: event.currentTarget.value })}>{OPS.map((op) => <option key={op} value={op}>{op}</option>)}</select>
              <input class="field grow" aria-label={t("Value")} value={criterion.value} onInput={(event) => change(at, { value: event.currentTarget.value })} />
              <button type="button" class="button quiet" aria-label={t("Remove the criterion")} disabled={criteria.length === 1} onClick={() => setCriteria((old) => old.filter((_, index) => index !== at))}>✕</button>
            </div>
          ))}
          <div class="row"><button type="button" class="button" onClick={() => setCriteria((old) => [...old, { key: "label", label: "", op: "=", value: "" }])}>{t("Add a criterion")}</button></div>
        </fieldset>
        <label class="label">{t("Comment")}<input class="field" maxLength={200} value={comment} onInput={(event) => setComment(event.currentTarget.value)} /></label>
        {stricter && <label class="row"><input type="checkbox" class="check" required checked={sure} onChange={() => setSure(!sure)} /> {t("I have looked at its violations: what no rule allows is against the rules from now on")}</label>}
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
          <button type="submit" class="button primary" disabled={stricter && !sure}>{made ? t("Change") : t("Make")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
