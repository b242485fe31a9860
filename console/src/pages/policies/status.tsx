/** Where policies are in force: by node, and by policy with the nodes that it waits for. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { NodeEnforcement, PolicyEnforcement, PolicyStatusReport } from "../../api/schema";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";

const SHOWN = 500;
const TONES: Record<string, string> = { applied: "ok", underWay: "info", failing: "bad", away: "bad", notCompiled: "warn", noAgent: "warn" };
const WORDS: Record<string, string> = { applied: "applied", underWay: "under way", failing: "failing", away: "agent is away", notCompiled: "not compiled", noAgent: "no agent" };

const NODES: TableColumn<NodeEnforcement>[] = [
  { id: "node", title: "Node", width: "minmax(160px, 1.2fr)", cell: ({ node }) => <span title={node}>{node}</span> },
  { id: "state", title: "State", width: "130px", cell: ({ state }) => <span class={`tag ${TONES[state] ?? ""}`}>{WORDS[state] ?? state}</span> },
  { id: "generation", title: "Program", width: "minmax(90px, .6fr)", cell: ({ generation, newest }) => <span class={generation === newest ? "" : "warn-text"} title={`generation ${generation} of ${newest}`}>{generation === 0 ? "none" : generation === newest ? "newest" : "older"}</span> },
  { id: "acknowledged", title: "Said so", width: "90px", end: true, cell: ({ acknowledged }) => <Age time={acknowledged} ago /> },
  { id: "waits", title: "Waits for", width: "minmax(200px, 2fr)", wrap: true, cell: ({ waitingFor }) => <span class="muted">{waitingFor}</span> },
];

const POLICIES: TableColumn<PolicyEnforcement>[] = [
  { id: "policy", title: "Policy", width: "minmax(200px, 1.4fr)", cell: ({ kind, policy }) => <span title={`${kind} ${policy}`}>{policy} <span class="faint">{kind}</span></span> },
  { id: "pods", title: "Pods", width: "74px", end: true, cell: ({ pods }) => (pods === null || pods === undefined ? <span class="faint" title="It may decide about any">any</span> : pods.toLocaleString("en")) },
  { id: "applied", title: "In force on", width: "120px", end: true, cell: ({ nodes, applied }) => <span class={applied < nodes ? "warn-text" : ""}>{applied} of {nodes}</span> },
  { id: "waiting", title: "Not yet on", width: "minmax(220px, 2fr)", wrap: true, cell: ({ waiting }) => waiting.slice(0, 5).map(({ node, waitingFor }) => <p key={node}>{node} <span class="muted">{waitingFor}</span></p>) },
  { id: "problem", title: "Not as written", width: "minmax(160px, 1.4fr)", wrap: true, cell: ({ problem }) => problem && <span class="bad-text">{problem}</span> },
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
              {policies.length === 0 ? "No policy is in force." : behind.length ? <span class="warn-text">The newest policies are not in force yet on {behind.length} of {nodes.length} {nodes.length === 1 ? "node" : "nodes"}.</span> : nodes.length ? `The newest policies are in force on all nodes (${nodes.length}).` : "No node is known."}
            </p>
            {policies.length > 0 && (
              <section class="card" aria-label="Policies">
                <header><h2>Policies</h2><span class="faint number">{policies.length}{policies.length > SHOWN ? `, the first ${SHOWN} are shown` : ""}</span></header>
                <ShortTable label="Policies" columns={POLICIES} rows={[...policies].sort((a, b) => Number(a.applied === a.nodes) - Number(b.applied === b.nodes)).slice(0, SHOWN)} rowKey={({ kind, policy }) => `${kind} ${policy}`} />
              </section>
            )}
            {nodes.length > 0 ? (
              <section class="card" aria-label="Nodes">
                <header><h2>Nodes</h2><span class="faint number">{nodes.length}{nodes.length > SHOWN ? `, the first ${SHOWN} are shown` : ""}</span></header>
                <ShortTable label="Nodes" columns={NODES} rows={[...behind, ...nodes.filter(({ state }) => state === "applied")].slice(0, SHOWN)} rowKey={({ node }) => node} />
              </section>
            ) : (
              <Empty title="No node enforces policies"><p>Agents do: <code>fairlead install --components guard,net,…</code>, or <code>policy.enforce: always</code> beside another pod network.</p></Empty>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
