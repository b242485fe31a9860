/** Tries a manifest against the rules in force, or against others, and shows every rule with what it found. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { asProblem, type ApiProblem } from "../../api/problem";
import { t } from "../../language";
import { ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import "./playground.css";

interface Explained {
  rule: string;
  action: string;
  decides: boolean;
  container?: string;
  selected: boolean;
  matched: boolean;
  criteria: { criterion: string; met: boolean; saw: string }[];
}

interface Tried {
  object: string | null;
  allowed: boolean;
  message: string;
  warnings: string[];
  rules: Explained[];
}

const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  template:
    spec:
      containers:
      - name: web
        image: nginx:1.27
        securityContext: {privileged: true}
`;

const RULES = `- name: no-privileged
  action: deny
  criteria: [{name: runAsPrivileged, op: "=", value: "true"}]
`;

const COLUMNS: TableColumn<Explained>[] = [
  { id: "container", title: t("Container"), width: "minmax(90px, .7fr)", cell: ({ container }) => container },
  { id: "rule", title: t("Rule"), width: "minmax(130px, 1fr)", cell: ({ rule, action }) => <span>{rule} <span class="faint">{action}</span></span> },
  { id: "result", title: t("Result"), width: "130px", cell: ({ selected, matched, decides }) => (!selected ? <span class="faint">{t("not selected")}</span> : matched ? <span class={`tag ${decides ? "bad" : "warn"}`}>{decides ? t("match") : t("match (monitor)")}</span> : <span class="muted">{t("no match")}</span>) },
  { id: "criteria", title: t("Criteria, and what was found"), width: "minmax(280px, 3fr)", wrap: true, cell: ({ criteria }) => criteria.map(({ criterion, met, saw }) => <p key={criterion}><span class={met ? "ok-text" : "muted"}>{met ? t("met") : t("not met")}</span> <code>{criterion}</code> <span class="muted">{saw}</span></p>) },
];

export default function Playground() {
  const [manifest, setManifest] = useState(EXAMPLE);
  const [rules, setRules] = useState("");
  const [user, setUser] = useState("");
  const [tried, setTried] = useState<Tried[] | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const ask = async (event: Event) => {
    event.preventDefault();
    setProblem(null);
    try {
      const body = { manifest, user, ...(rules.trim() ? { rules } : {}) };
      setTried((await api.post<{ objects: Tried[] }>("/admission/test", body)).objects);
    } catch (error) {
      setTried(null);
      setProblem(asProblem(error));
    }
  };
  return (
    <form class="stack" onSubmit={(event) => void ask(event)}>
      <div class="playground">
        <label class="label">
          {t("Manifests")}
          <textarea class="field mono" rows={16} spellcheck={false} value={manifest} onInput={(event) => setManifest(event.currentTarget.value)} />
        </label>
        <label class="label">
          {t("Rules; those in force if this is empty")}
          <textarea class="field mono" rows={16} spellcheck={false} placeholder={RULES} value={rules} onInput={(event) => setRules(event.currentTarget.value)} />
        </label>
      </div>
      <div class="row wrap">
        <label class="row">{t("Applied by")} <input class="field" placeholder={t("nobody in particular")} value={user} onInput={(event) => setUser(event.currentTarget.value)} /></label>
        <button type="submit" class="button primary">{t("Try")}</button>
        <span class="muted">{t("Nothing is written, and no cluster is asked.")}</span>
      </div>
      {problem && <ProblemNotice problem={problem} />}
      {tried?.map((one, index) => (
        <section key={index} class="card" aria-label={one.object ?? t("An object")}>
          <header>
            <span class={`tag ${one.allowed ? "ok" : "bad"}`}>{one.allowed ? t("allowed") : t("denied")}</span>
            <h2>{one.object ?? t("cannot be read")}</h2>
            <span class="muted clip" title={one.message}>{one.message}</span>
          </header>
          {one.warnings.map((text) => <p key={text} class="body muted">{text}</p>)}
          {one.rules.length > 0 && <ShortTable label={t("Rules, each held against each container")} columns={COLUMNS} rows={one.rules} rowKey={(row) => `${row.container} ${row.rule}`} />}
        </section>
      ))}
    </form>
  );
}
