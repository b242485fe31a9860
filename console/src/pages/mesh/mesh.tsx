/** Meshes: which clusters are joined, what each waits for, why one cannot reach another, and their tunnels. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { Checked, Mesh, Meshes } from "../../api/schema";
import { rich, t } from "../../language";
import { useTopic } from "../../live/live";
import { bodyProblem, Empty, Loading, ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { wordTone } from "../../parts/tone";
import { query, setQuery } from "../../router";
import { Outside } from "./outside";
import { Tunnels } from "./tunnels";
import "./mesh.css";

interface MeshCluster {
  name: string;
  state: string;
  why?: string;
  since?: string;
  lastSuccess?: string;
  wantedPeers: number;
  readyPeers?: number;
}

interface Status {
  clusters?: MeshCluster[];
  conditions?: { type: string; status: string; reason?: string; message?: string }[];
}

const COLUMNS: TableColumn<MeshCluster>[] = [
  { id: "name", title: t("Cluster"), width: "minmax(150px, 1fr)", cell: ({ name, state }) => <span class="row"><span class={`dot ${wordTone(state)}`} /> <span class="clip">{name}</span></span> },
  { id: "state", title: t("State"), width: "minmax(220px, 2.4fr)", wrap: true, cell: ({ state, why, since }) => <>{state}{since && <span class="faint">{" "}{rich("for {age}", { age: <Age time={since} /> })}</span>}{why && <p class="muted">{why}</p>}</> },
  { id: "peers", title: t("Peers"), width: "100px", end: true, cell: ({ wantedPeers, readyPeers }) => <span class={readyPeers !== undefined && readyPeers < wantedPeers ? "warn-text" : ""}>{readyPeers === undefined ? "–" : t("{readyPeers} of {wantedPeers}", { readyPeers, wantedPeers })}</span> },
  { id: "last", title: t("All in place"), width: "110px", end: true, cell: ({ lastSuccess }) => <Age time={lastSuccess} ago /> },
];

export default function MeshPage() {
  const { data, problem } = useTopic<Meshes>({ topic: "meshes" });
  return (
    <div class="page">
      <header>
        <h1>{t("Mesh")}</h1>
        {data && <span class="muted number">{data.meshes.length}</span>}
      </header>
      {problem && <ProblemNotice problem={bodyProblem(problem)} />}
      {!data && !problem && <Loading lines={5} />}
      {data?.meshes.length === 0 && (
        <Empty title={t("No clusters are joined")}>
          <p>{t("A ClusterMesh joins clusters by WireGuard, and says what it waits for.")}</p>
          <p><code>fairlead mesh apply -f FILE</code></p>
        </Empty>
      )}
      {data?.meshes.map((mesh) => <One key={`${mesh.namespace}/${mesh.name}`} mesh={mesh} />)}
    </div>
  );
}

function One({ mesh }: { mesh: Mesh }) {
  const status = (mesh.status ?? {}) as Status;
  const clusters = status.clusters ?? [];
  const ready = status.conditions?.find(({ type }) => type === "Ready");
  return (
    <section class="card" aria-label={t("Mesh {name}", { name: mesh.name })}>
      <header>
        <span class={`dot ${ready?.status === "True" ? "ok" : ready ? "warn" : ""}`} />
        <h2>{mesh.namespace}/{mesh.name}</h2>
        {mesh.deleting && <span class="tag warn">{t("being deleted")}</span>}
        <span class="muted clip" title={ready?.message}>{ready?.message ?? (mesh.status ? "" : t("no controller has looked at it yet"))}</span>
      </header>
      {(status.conditions ?? []).filter(({ type, status }) => type === "NetworksOverlap" && status === "True").map(({ message }) => <div key={message} class="notice bad"><p>{message}</p></div>)}
      {clusters.length > 0 && <ShortTable label={t("Clusters of {name}", { name: mesh.name })} columns={COLUMNS} rows={clusters} rowKey={({ name }) => name} />}
      {clusters.length > 1 && <Why mesh={mesh} names={clusters.map(({ name }) => name)} />}
      {mesh.spec["dataPlane"] === "wireguard" && <Tunnels mesh={mesh} />}
      <Outside mesh={mesh} />
    </section>
  );
}

/** Why the pods of one cluster cannot reach those of another. */
function Why({ mesh, names }: { mesh: Mesh; names: string[] }) {
  const from = query.value.get("from") ?? names[0] ?? "";
  const to = query.value.get("to") ?? names[1] ?? "";
  const [checked, setChecked] = useState<Checked | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const ask = async () => {
    setProblem(null);
    setChecked(null);
    try {
      setChecked(await api.get<Checked>(path`/meshes/${mesh.namespace}/${mesh.name}/check`, { query: { from, to } }));
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  const choose = (which: "from" | "to", value: string) => (
    <select class="select" aria-label={which === "from" ? t("From cluster") : t("To cluster")} value={value} onChange={(event) => setQuery({ [which]: event.currentTarget.value })}>
      {names.map((name) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
  return (
    <div class="body stack">
      <div class="row wrap">
        <span>{t("Can pods of")}</span> {choose("from", from)} <span>{t("reach those of")}</span> {choose("to", to)}
        <button type="button" class="button" disabled={from === to} onClick={() => void ask()}>{t("Ask")}</button>
      </div>
      {problem && <ProblemNotice problem={problem} />}
      {checked && (
        <div class={`notice ${checked.reaches ? "info" : "bad"}`} role="status">
          <div>
            <p>{checked.reaches ? t("Yes: everything between {from} and {to} is in place.", { from: checked.from, to: checked.to }) : t("No: pods of {from} do not reach those of {to}. In the order in which to fix them:", { from: checked.from, to: checked.to })}</p>
            <ol class="reasons">
              {checked.reasons.map((reason) => <li key={JSON.stringify(reason)} class="break">{String(reason["message"] ?? reason["reason"] ?? "")}</li>)}
            </ol>
          </div>
        </div>
      )}
    </div>
  );
}
