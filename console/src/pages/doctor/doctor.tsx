/**
 * The doctor: dumps, logs, metrics or bundles are dropped on the page, or a pod is asked for them; findings
 * come back. Nothing is kept.
 */
import { useRef, useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { asProblem, type ApiProblem } from "../../api/problem";
import { locale, rich, t } from "../../language";
import { download } from "../../parts/download";
import { Empty, ProblemNotice } from "../../parts/problem";
import { clusters } from "../../fleet";
import { AskPod, type PodAsked } from "./ask-pod";
import { WaitGraph, type Graph } from "./wait-graph";
import "../fleet/fleet.css";
import "./doctor.css";

interface Confidence {
  level: string;
  why: string;
}

interface Evidence {
  input: string;
  line?: number;
  text: string;
}

interface Finding {
  id: string;
  class: string;
  severity: "critical" | "serious" | "minor";
  title: string;
  waiters?: { total: number; by_entry?: { name: string; count: number }[] };
  since?: { text: string };
  holders?: { frame: string; count: number; blocked_on?: string; confidence: Confidence }[];
  no_holder?: string;
  cycle?: { holds: string; waits_for: string; frame: string }[];
  blast_radius?: { what: string; count: number; why: string }[];
  remedy: string;
  collect_next?: string[];
  evidence?: Evidence[];
  confidence: Confidence;
  details?: string[];
}

interface Report {
  inputs: { name: string; taken_for: string[]; size: number; read?: string[]; refused?: { line?: number; why: string }[] }[];
  findings?: Finding[];
  graph?: Graph;
  notes?: { text: string }[];
}

/** The most that the server takes. */
const LARGEST = 64 * 1024 * 1024;

export default function Doctor() {
  const [report, setReport] = useState<Report | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const mayAsk = clusters.value.some(({ state }) => state === "ready" || state === "degraded");
  /** Asks a pod for its profiles, twice: what stands still between the two is stuck. */
  const ask = async ({ cluster, namespace, pod, port }: PodAsked) => {
    setProblem(null);
    setBusy(t("{namespace}/{pod} of {cluster}, which is asked twice, some seconds apart", { namespace, pod, cluster }));
    try {
      const route = path`/clusters/${cluster}/resources/pods/${pod}/doctor`;
      setReport(await api.post<Report>(route, port ? { port } : {}, { query: { namespace }, headers: { "request-timeout": "70s" } }));
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(null);
  };
  const examine = async (files: File[]) => {
    if (!files.length) return;
    const size = files.reduce((sum, file) => sum + file.size, 0);
    setProblem(null);
    if (size > LARGEST) {
      setProblem(asProblem(new Error(t("These files have {what} MiB, and 64 are the most that is taken here; on the command line, fairlead doctor takes any size", { what: (size / 1048576).toFixed(0) }))));
      return;
    }
    setBusy(files.map(({ name }) => name).join(", "));
    const form = new FormData();
    files.forEach((file) => form.append("file", file, file.name));
    try {
      // The browser writes the boundary into a body of its own making.
      const whole = new Response(form);
      const type = whole.headers.get("content-type") ?? "multipart/form-data";
      setReport(await api.upload<Report>("POST", "/doctor", await whole.arrayBuffer(), type));
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(null);
  };
  return (
    <div
      class={`page${over ? " dropping" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => {
        if (event.currentTarget === event.target) setOver(false);
      }}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void examine([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <header>
        <h1>{t("Doctor")}</h1>
        {report && (
          <button type="button" class="button" onClick={() => input.current?.click()}>
            {t("Examine others")}
          </button>
        )}
        {report && <button type="button" class="button" onClick={() => setReport(null)}>{t("Start over")}</button>}
        {report && (
          <button type="button" class="button quiet" onClick={() => save(report)}>
            {t("Save as JSON")}
          </button>
        )}
        {busy && <span class="muted" role="status">{t("Examining {busy}…", { busy })}</span>}
      </header>
      <input ref={input} type="file" multiple hidden aria-label={t("Files to examine")} onChange={(event) => void examine([...(event.currentTarget.files ?? [])])} />
      {problem && <ProblemNotice problem={problem} />}
      {report ? (
        <Shown report={report} />
      ) : (
        <>
        <section class="dropzone" aria-label={t("Examine")}>
          <h2>{t("What is stuck?")}</h2>
          <p class="muted">
            {t("Drop goroutine dumps, thread dumps, logs, metrics or a support bundle here: of any daemon, not only of this one. Two dumps some seconds apart say more than one.")}
          </p>
          <button type="button" class="button primary" onClick={() => input.current?.click()}>
            {t("Choose files")}
          </button>
          <p class="muted small">
            <code>curl -s http://DAEMON:6060/debug/pprof/goroutine?debug=2 &gt; dump.txt</code>
          </p>
        </section>
        {mayAsk && <AskPod busy={busy !== null} onAsk={(asked) => void ask(asked)} />}
        </>
      )}
    </div>
  );
}

function save(report: Report): void {
  download("doctor.json", JSON.stringify(report, null, 2), "application/json");
}

const TONE = { critical: "bad", serious: "warn", minor: "" };

function Shown({ report }: { report: Report }) {
  const findings = report.findings ?? [];
  return (
    <>
      <p class="muted break">
        {report.inputs.map(({ name, taken_for, read }) => `${name}: ${taken_for.join(", ")}${read?.length ? `, ${read.join(", ")}` : ""}`).join("; ")}
      </p>
      {report.inputs.flatMap(({ name, refused }) => (refused ?? []).map(({ line, why }) => (
        <div key={name + line + why} class="notice warn"><p class="break">{name}{line ? t(", line {line}", { line }) : ""}: {why}</p></div>
      )))}
      {findings.length === 0 && <Empty title={t("No stall was found")}><p>{t("What waits there, waits as daemons do.")}</p></Empty>}
      {report.graph && report.graph.nodes.length > 0 && <WaitGraph graph={report.graph} />}
      {findings.map((finding) => <One key={finding.id} finding={finding} />)}
      {(report.notes ?? []).map(({ text }) => <p key={text} class="muted break">{text}</p>)}
    </>
  );
}

function One({ finding }: { finding: Finding }) {
  const { holders = [], cycle = [], evidence = [] } = finding;
  return (
    <section class="card finding" id={finding.id} aria-label={finding.title}>
      <header>
        <span class={`tag ${TONE[finding.severity]}`}>{finding.severity}</span>
        <h2 class="break">{finding.title}</h2>
      </header>
      <div class="body stack">
        <dl class="pairs">
          <dt>{t("Class")}</dt>
          <dd>{finding.class.replaceAll("_", " ")} <span class="faint">({finding.confidence.level}: {finding.confidence.why})</span></dd>
          {finding.waiters && finding.waiters.total > 0 && (
            <>
              <dt>{t("Waits")}</dt>
              <dd>
                {finding.waiters.total.toLocaleString(locale)}
                {finding.waiters.by_entry?.length ? `: ${finding.waiters.by_entry.slice(0, 4).map(({ name, count }) => `${count.toLocaleString(locale)} ${name}`).join(", ")}` : ""}
              </dd>
            </>
          )}
          {finding.since?.text && <><dt>{t("Since")}</dt><dd>{finding.since.text}</dd></>}
          <dt>{t("Holder")}</dt>
          <dd>
            {holders.length === 0 && (finding.no_holder ?? t("not named"))}
            {holders.slice(0, 3).map((holder) => (
              <p key={holder.frame} class="break">
                <code>{holder.frame}</code>
                {holder.blocked_on && <span class="muted">{t(", which waits for {blocked_on}", { blocked_on: holder.blocked_on })}</span>} <span class="faint">({holder.confidence.level}: {holder.confidence.why})</span>
              </p>
            ))}
          </dd>
          {cycle.length > 0 && (
            <>
              <dt>{t("Circle")}</dt>
              <dd>{cycle.map((step) => <p key={step.frame + step.holds} class="break">{rich("{frame} holds {holds} and waits for {waits_for}", { frame: <code>{step.frame}</code>, holds: step.holds, waits_for: step.waits_for })}</p>)}</dd>
            </>
          )}
          <dt>{t("What to do")}</dt>
          <dd class="break">{finding.remedy}</dd>
          {(finding.collect_next ?? []).length > 0 && <><dt>{t("Collect next")}</dt><dd class="break">{finding.collect_next?.join(" ")}</dd></>}
        </dl>
        {(finding.details ?? []).map((text) => <p key={text} class="muted break">{text}</p>)}
        {evidence.length > 0 && (
          <details>
            <summary class="muted">{t("Evidence ({count})", { count: evidence.length })}</summary>
            <pre class="evidence" tabIndex={0}>{evidence.map(({ input, line, text }) => `${input}${line ? `:${line}` : ""}  ${text}`).join("\n")}</pre>
          </details>
        )}
      </div>
    </section>
  );
}
