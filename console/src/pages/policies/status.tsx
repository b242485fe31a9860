/** Where policies are in force: by node, and by policy with the nodes that it waits for. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { NodeEnforcement, PolicyEnforcement, PolicyStatusReport } from "../../api/schema";
import { locale, rich, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";

const SHOWN = 500;
const TONES: Record<string, string> = { applied: "ok", underWay: "info", failing: "bad", away: "bad", notCompiled: "warn", noAgent: "warn" };
const WORDS: Record<string, string> = { applied: "applied", underWay: t("under way"), failing: "failing", away: t("agent is away"), notCompiled: t("not compiled"), noAgent: t("no agent") };

const NODES: TableColumn<NodeEnforcement>[] = [
  { id: "node", title: "Node", width: "minmax(160px, 1.2fr)", cell: ({ node }) => <span title={node}>{node}</span> },
  { id: "state", title: t("State"), width: "130px", cell: ({ state }) => <span class={`tag ${TONES[state] ?? ""}`}>{WORDS[state] ?? state}</span> },
  { id: "generation", title: t("Program"), width: "minmax(90px, .6fr)", cell: ({ generation, newest }) => <span class={generation === newest ? "" : "warn-text"} title={t("generation {generation} of {newest}", { generation, newest })}>{generation === 0 ? t("none") : generation === newest ? t("newest") : t("older")}</span> },
  { id: "acknowledged", title: t("Said so"), width: "90px", end: true, cell: ({ acknowledged }) => <Age time={acknowledged} ago /> },
  { id: "waits", title: t("Waits for"), width: "minmax(200px, 2fr)", wrap: true, cell: ({ waitingFor }) => <span class="muted">{waitingFor}</span> },
];

const POLICIES: TableColumn<PolicyEnforcement>[] = [
  { id: "policy", title: t("Policy"), width: "minmax(200px, 1.4fr)", cell: ({ kind, policy }) => <span title={`${kind} ${policy}`}>{policy} <span class="faint">{kind}</span></span> },
  { id: "pods", title: "Pods", width: "74px", end: true, cell: ({ pods }) => (pods === null || pods === undefined ? <span class="faint" title={t("It may decide about any")}>{t("any")}</span> : pods.toLocaleString(locale)) },
  { id: "applied", title: t("In force on"), width: "120px", end: true, cell: ({ nodes, applied }) => <span class={applied < nodes ? "warn-text" : ""}>{t("{applied} of {nodes}", { applied, nodes })}</span> },
  { id: "waiting", title: t("Not yet on"), width: "minmax(220px, 2fr)", wrap: true, cell: ({ waiting }) => waiting.slice(0, 5).map(({ node, waitingFor }) => <p key={node}>{node} <span class="muted">{waitingFor}</span></p>) },
  { id: "problem", title: t("Not as written"), width: "minmax(160px, 1.4fr)", wrap: true, cell: ({ problem }) => problem && <span class="bad-text">{problem}</span> },
];

export function StatusTab() {
  const read = useFetch("policy status", (signal) => api.get<PolicyStatusReport>("/policies/status", { signal }), 3000);
  return (
    <Loaded of={read}>
      {({ nodes, policies }) => {
        const behind = nodes.filter(({ state }) => state !== "applied");
        return (
          <>
            <p class="muted">
              {policies.length === 0 ? t("No policy is in force.") : behind.length ? <span class="warn-text">{t("The newest policies are not in force yet on {count} of {count2} {what}.", { count: behind.length, count2: nodes.length, what: nodes.length === 1 ? t("node") : t("nodes") })}</span> : nodes.length ? t("The newest policies are in force on all nodes ({count}).", { count: nodes.length }) : t("No node is known.")}
            </p>
            {policies.length > 0 && (
              <section class="card" aria-label={t("Policies")}>
                <header><h2>{t("Policies")}</h2><span class="faint number">{policies.length}{policies.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span></header>
                <ShortTable label={t("Policies")} columns={POLICIES} rows={[...policies].sort((a, b) => Number(a.applied === a.nodes) - Number(b.applied === b.nodes)).slice(0, SHOWN)} rowKey={({ kind, policy }) => `${kind} ${policy}`} />
              </section>
            )}
            {nodes.length > 0 ? (
              <section class="card" aria-label="Nodes">
                <header><h2>Nodes</h2><span class="faint number">{nodes.length}{nodes.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span></header>
                <ShortTable label="Nodes" columns={NODES} rows={[...behind, ...nodes.filter(({ state }) => state === "applied")].slice(0, SHOWN)} rowKey={({ node }) => node} />
              </section>
            ) : (
              <Empty title={t("No node enforces policies")}><p>{rich("Agents do: {code}, or {code2} beside another pod network.", { code: <code>fairlead install --components guard,net,…</code>, code2: <code>policy.enforce: always</code> })}</p></Empty>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
