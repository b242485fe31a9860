/** Adds a response rule, or changes one. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ListedResponse, ReceiverList } from "../../api/schema";
import { t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";

export interface ResponseSpec {
  comment?: string;
  event: string;
  conditions?: { level?: string; names?: string[]; groups?: string[]; workloads?: string[]; clusters?: string[]; frequency?: { count: number; seconds: number } };
  actions: string[];
  receivers?: string[];
  priority: number;
  disabled?: boolean;
}

const EVENTS = ["violation", "admission", "agent", "stall", "audit", "receiver", "scan"];
const LEVELS = ["info", "notice", "warning", "error", "critical"];
const ACTIONS: [string, string][] = [["notify", t("tell receivers")], ["suppress", t("do nothing more about it")], ["quarantine", t("put the pod apart")]];
const LISTS = [["names", t("Names"), "violation.denied, …"], ["groups", t("Groups"), "payment, shop/*"], ["workloads", t("Workloads"), "shop/Deployment/*"], ["clusters", t("Clusters"), "eu, -"]] as const;

export function conditionsText({ conditions = {} }: ResponseSpec): string {
  const { level, frequency } = conditions;
  const lists = LISTS.flatMap(([key]) => (conditions[key]?.length ? [`${key} ${conditions[key]?.join(", ")}`] : []));
  return [level ? t("at least {level}", { level }) : "", ...lists, frequency ? t("{count} within {seconds} s", { count: frequency.count, seconds: frequency.seconds }) : ""].filter(Boolean).join("; ");
}

const split = (text: string): string[] => text.split(",").map((one) => one.trim()).filter(Boolean);

export function ResponseDialog({ rule, onClose }: { rule: ListedResponse | null; onClose: (changed: boolean) => void }) {
  const before = (rule?.spec as unknown as ResponseSpec | undefined) ?? { event: "violation", actions: ["notify"], priority: 1000 };
  const [name, setName] = useState(rule?.name ?? "");
  const [spec, setSpec] = useState<ResponseSpec>(before);
  const [lists, setLists] = useState<Record<string, string>>(Object.fromEntries(LISTS.map(([key]) => [key, before.conditions?.[key]?.join(", ") ?? ""])));
  const [problem, setProblem] = useState<unknown>(null);
  const known = useFetch("receivers", (signal) => api.get<ReceiverList>("/receivers", { signal }));
  const names = [...new Set([...(known.data?.receivers.map((one) => one.name) ?? []), ...(spec.receivers ?? [])])];
  const toggle = (list: string[], one: string) => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);
  const save = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    const conditions: Record<string, unknown> = { ...spec.conditions };
    for (const [key] of LISTS) {
      const values = split(lists[key] ?? "");
      if (values.length) conditions[key] = values;
      else delete conditions[key];
    }
    if (!conditions["level"]) delete conditions["level"];
    try {
      await api.put(path`/responses/${name}`, { spec: { ...spec, conditions, receivers: spec.actions.includes("notify") ? (spec.receivers ?? []) : [] } });
      toast(rule ? t("The rule {name} is changed.", { name }) : t("The rule {name} is added.", { name }));
      onClose(true);
    } catch (error) {
      setProblem(error);
    }
  };
  const title = rule ? t("Response rule {name}", { name: rule.name }) : t("Add a response rule");
  return (
    <Dialog title={title} wide onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        <h1 class="break">{title}</h1>
        <div class="row wrap">
          {!rule && <label class="label grow">{t("Name")}<input class="field" required autofocus pattern="[a-z0-9]([\-a-z0-9]*[a-z0-9])?" title={t("small letters, digits and dashes")} value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>}
          <label class="label">{t("Events")}<select class="select" value={spec.event} onChange={(event) => setSpec({ ...spec, event: event.currentTarget.value })}>{EVENTS.map((one) => <option key={one} value={one}>{one}</option>)}</select></label>
          <label class="label">
            {t("At least")}
            <select class="select" value={spec.conditions?.level ?? ""} onChange={(event) => setSpec({ ...spec, conditions: { ...spec.conditions, level: event.currentTarget.value } })}>
              <option value="">{t("any level")}</option>
              {LEVELS.map((one) => <option key={one} value={one}>{one}</option>)}
            </select>
          </label>
          <label class="label">{t("Priority")}<input class="field number" type="number" min={0} max={1000000} required value={String(spec.priority)} onInput={(event) => setSpec({ ...spec, priority: event.currentTarget.valueAsNumber })} /></label>
        </div>
        {LISTS.map(([key, text, placeholder]) => (
          <label key={key} class="label">{text}<input class="field" placeholder={t("any; {placeholder}", { placeholder })} spellcheck={false} value={lists[key] ?? ""} onInput={(event) => setLists({ ...lists, [key]: event.currentTarget.value })} /></label>
        ))}
        <fieldset class="stack">
          <legend class="muted">{t("What is done")}</legend>
          {ACTIONS.map(([action, text]) => <label key={action} class="row"><input type="checkbox" class="check" checked={spec.actions.includes(action)} onChange={() => setSpec({ ...spec, actions: toggle(spec.actions, action) })} /> {action}: {text}</label>)}
        </fieldset>
        {spec.actions.includes("notify") && (
          <fieldset class="stack">
            <legend class="muted">{t("Who is told")}</legend>
            {names.map((one) => <label key={one} class="row"><input type="checkbox" class="check" checked={spec.receivers?.includes(one) ?? false} onChange={() => setSpec({ ...spec, receivers: toggle(spec.receivers ?? [], one) })} /> {one}</label>)}
            {!names.length && <p class="muted">{t("There is no receiver yet: add one first.")}</p>}
          </fieldset>
        )}
        <label class="row"><input type="checkbox" class="check" checked={spec.disabled ?? false} onChange={() => setSpec({ ...spec, disabled: !spec.disabled })} /> {t("Do not look at it for now")}</label>
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
          <button type="submit" class="button primary" disabled={!spec.actions.length}>{rule ? t("Change") : t("Add")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
