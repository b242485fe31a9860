/** Writes a network rule, or changes one that was written. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import type { NetworkRuleLine } from "../../api/schema";
import { t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { ProblemNotice } from "../../parts/problem";
import { toast } from "../../parts/toast";

const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

export function RuleDialog({ rule, groups, onClose }: { rule: NetworkRuleLine | null; groups: string[]; onClose: (changed: boolean) => void }) {
  const [name, setName] = useState(rule?.name ?? "");
  const [from, setFrom] = useState(rule?.from ?? "");
  const [to, setTo] = useState(rule?.to ?? "");
  const [action, setAction] = useState(rule?.action ?? "allow");
  const [ports, setPorts] = useState((rule?.ports ?? []).join(", "));
  const [applications, setApplications] = useState((rule?.applications ?? []).join(", "));
  const [priority, setPriority] = useState(rule?.priority ?? null);
  const [comment, setComment] = useState(rule?.comment ?? "");
  const [disabled, setDisabled] = useState(rule?.state === "disabled");
  const [problem, setProblem] = useState<unknown>(null);
  const save = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      await api.put(path`/guard/rules/${name}`, {
        spec: { from, to, action, ports: words(ports), applications: words(applications), disabled, ...(priority === null ? {} : { priority }), ...(comment ? { comment } : {}) },
      });
      toast(rule ? t("The rule {name} is changed.", { name }) : t("The rule {name} is written.", { name }));
      onClose(true);
    } catch (error) {
      setProblem(error);
    }
  };
  const title = rule ? t("Rule {name}", { name: rule.name }) : t("Write a rule");
  return (
    <Dialog title={title} onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        <h1 class="break">{title}</h1>
        {!rule && <label class="label">{t("Name")}<input class="field" required pattern="[a-z0-9]([\-a-z0-9.]*[a-z0-9])?" title={t("small letters, digits, dashes and dots")} value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>}
        <datalist id="rule-groups">{["any", "external", "hosts", "ingress", "services", "unmanaged", "workloads", ...groups].slice(0, 500).map((group) => <option key={group} value={group} />)}</datalist>
        <label class="label">{t("From")}<input class="field" required list="rule-groups" spellcheck={false} value={from} onInput={(event) => setFrom(event.currentTarget.value)} /></label>
        <label class="label">{t("To")}<input class="field" required list="rule-groups" spellcheck={false} value={to} onInput={(event) => setTo(event.currentTarget.value)} /></label>
        <div class="row wrap">
          <label class="label">{t("Action")}<select class="select" value={action} onChange={(event) => setAction(event.currentTarget.value)}><option value="allow">{t("allow")}</option><option value="deny">{t("deny")}</option></select></label>
          <label class="label grow">{t("Ports; none is all")}<input class="field" placeholder="tcp/80, udp/8000-8010" value={ports} onInput={(event) => setPorts(event.currentTarget.value)} /></label>
        </div>
        <div class="row wrap">
          <label class="label grow">{t("Applications; none is all")}<input class="field" placeholder="http, redis" value={applications} onInput={(event) => setApplications(event.currentTarget.value)} /></label>
          <label class="label">{t("Priority")}<input class="field number" type="number" min={0} max={1000000} placeholder={t("middle")} value={priority === null ? "" : String(priority)} onInput={(event) => setPriority(event.currentTarget.value === "" ? null : event.currentTarget.valueAsNumber)} /></label>
        </div>
        <label class="label">{t("Comment")}<input class="field" maxLength={200} value={comment} onInput={(event) => setComment(event.currentTarget.value)} /></label>
        <label class="row"><input type="checkbox" class="check" checked={disabled} onChange={() => setDisabled(!disabled)} /> {t("Disabled: never looked at")}</label>
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
          <button type="submit" class="button primary">{rule ? t("Change") : t("Write")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
