/** Makes a role, or changes one: rules that allow and rules that deny, each four lists of words. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import type { Role, Rule } from "../../api/schema";
import { rich, t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";
import { words as sentence } from "./words";

/** A rule as it is typed: words separated by commas or spaces. */
type Draft = Record<keyof Rule, string>;

const PARTS: [keyof Rule, string][] = [
  ["verbs", "get, list, watch"],
  ["resources", "pods, deployments.apps"],
  ["namespaces", "shop, pay-*"],
  ["clusters", "*"],
];
const EMPTY: Draft = { verbs: "", resources: "", namespaces: "*", clusters: "*" };

const split = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);
const draft = (rule: Rule): Draft => ({ verbs: rule.verbs.join(", "), resources: rule.resources.join(", "), namespaces: rule.namespaces.join(", "), clusters: rule.clusters.join(", ") });
const ruleOf = (of: Draft): Rule => ({ verbs: split(of.verbs), resources: split(of.resources), namespaces: split(of.namespaces), clusters: split(of.clusters) });

export function RoleDialog({ role, onClose }: { role: Role | null; onClose: (changed: boolean) => void }) {
  const [name, setName] = useState(role?.name ?? "");
  const [allow, setAllow] = useState<Draft[]>(role ? role.allow.map(draft) : [EMPTY]);
  const [deny, setDeny] = useState<Draft[]>(role?.deny.map(draft) ?? []);
  const [problem, setProblem] = useState<unknown>(null);
  const save = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const rules = { allow: allow.map(ruleOf), deny: deny.map(ruleOf) };
      if (role) await api.put(path`/roles/${role.name}`, rules);
      else await api.post("/roles", { name, ...rules });
      toast(role ? t("The role {name} is changed.", { name }) : t("The role {name} is made.", { name }));
      onClose(true);
    } catch (error) {
      setProblem(error);
    }
  };
  const rules = (title: string, all: Draft[], set: (next: Draft[]) => void, add: string) => (
    <fieldset class="stack">
      <legend class="muted">{title}</legend>
      {all.map((one, at) => (
        <div key={at} class="role-rule">
          {PARTS.map(([part, example]) => (
            <label key={part} class="label">{part}<input class="field" required placeholder={example} spellcheck={false} value={one[part]} onInput={(event) => set(all.map((old, index) => (index === at ? { ...old, [part]: event.currentTarget.value } : old)))} /></label>
          ))}
          <button type="button" class="button quiet" aria-label={t("Remove the rule")} onClick={() => set(all.filter((_, index) => index !== at))}>✕</button>
          {one.verbs.trim() && one.resources.trim() && <p class="muted small">{sentence(ruleOf(one))}</p>}
        </div>
      ))}
      <div class="row"><button type="button" class="button" onClick={() => set([...all, EMPTY])}>{add}</button></div>
    </fieldset>
  );
  const title = role ? t("Role {name}", { name: role.name }) : t("Make a role");
  return (
    <Dialog title={title} wide onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        <h1 class="break">{title}</h1>
        <p class="muted">{rich("Words may have {code} and {code2}. The cluster {code3} is the fleet itself, the namespace {code4} stands for resources that are in none. Deny wins. Whoever has the role has it so within seconds, open streams included.", { code: <code>*</code>, code2: <code>?</code>, code3: <code>-</code>, code4: <code>-</code> })}</p>
        {!role && <label class="label">{t("Name")}<input class="field" required pattern="[a-z0-9]([\-a-z0-9.]*[a-z0-9])?" title={t("small letters, digits, dashes and dots")} value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>}
        {rules(t("May"), allow, setAllow, t("Allow something else"))}
        {rules(t("May not"), deny, setDeny, t("Deny something"))}
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
          <button type="submit" class="button primary">{role ? t("Change") : t("Make")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
