/** One cluster: how it stands, what is on it, its nodes, events and Helm releases. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Cluster, Events } from "../../api/schema";
import { useCan } from "../../api/session";
import { cluster as findCluster, clusterTone, fleet } from "../../fleet";
import { locale, rich, t } from "../../language";
import { Empty, Loaded, Loading } from "../../parts/problem";
import { Favourite } from "../../parts/star";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { Age, latency, now } from "../../parts/time";
import { clusterPage, explore, object } from "../../places";
import { href } from "../../router";
import type { PageProps } from "../../routes";
import { cores, factKey, memory, Meter, Taints, useNodes, useUsage, type NodeFacts, type Usage } from "../../usage";
import { Lazy } from "../object/lazy";
import { ClusterMenu, TestDialog } from "../fleet/cluster";
import "../fleet/fleet.css";
import "./cluster.css";
import { Helm } from "./helm";

const TABS: Tab[] = [
  { id: "overview", title: t("Overview") },
  { id: "nodes", title: "Nodes" },
  { id: "events", title: t("Events") },
  { id: "usage", title: t("Usage") },
  { id: "helm", title: t("Helm releases") },
];

/** Whether the cluster can be asked anything: of one that is dead, what is known is all there is. */
const answers = ({ state }: Cluster): boolean => state === "ready" || state === "degraded";

export default function ClusterPage({ params }: PageProps) {
  const name = params["cluster"] ?? "";
  const known = findCluster(name);
  const tab = tabOf(TABS);
  const [testing, setTesting] = useState(false);
  const [mayChange, mayDelete] = useCan([
    { cluster: "-", resource: "clusters.fairlead.dev", verb: "update" },
    { cluster: "-", resource: "clusters.fairlead.dev", verb: "delete" },
  ]);
  return (
    <div class="page cluster">
      <header>
        <div class="title">
          <p class="muted small crumbs"><a href="/">{t("Fleet")}</a></p>
          <h1 class="break">{name}</h1>
        </div>
        <Favourite href={clusterPage(name)} title={name} note={t("cluster")} />
        {known && <span class={`tag ${clusterTone(known.state)}`}>{known.state}</span>}
        {known && <span class="muted">{rich("for {age}", { age: <Age time={known.since} /> })}</span>}
        <span class="grow" />
        <a class="button" href={explore([name], "pods")}>Pods</a>
        {mayChange && known && <button type="button" class="button" onClick={() => setTesting(true)}>{t("Test")}</button>}
        {known && <ClusterMenu cluster={known} mayChange={mayChange ?? false} mayDelete={mayDelete ?? false} />}
      </header>
      {!known && !fleet.value && <Loading />}
      {!known && fleet.value && <Empty title={t("There is no cluster {name}", { name })}><p>{rich("It was removed, or your roles do not let you see it. {link} has those that you may see.", { link: <a href="/">{t("The fleet")}</a> })}</p></Empty>}
      {known && !answers(known) && <Dead cluster={known} />}
      {known && <Facts of={known} />}
      {known && answers(known) && (
        <>
          <Tabs label={t("Parts of the cluster")} tabs={TABS} />
          {tab === "overview" && <Overview key={name} name={name} />}
          {tab === "nodes" && <Nodes key={name} name={name} />}
          {tab === "events" && <EventsOf key={name} name={name} />}
          {tab === "usage" && <div class="card"><div class="body"><Lazy key={name} load={() => import("../../usage-history")} props={{ cluster: name }} /></div></div>}
          {tab === "helm" && <Helm key={name} cluster={name} />}
        </>
      )}
      {testing && <TestDialog name={name} onClose={() => setTesting(false)} />}
    </div>
  );
}

/** Why nothing can be shown, when it is tried again, and what to do meanwhile. */
function Dead({ cluster }: { cluster: Cluster }) {
  const { state, why, nextTry, lastSeen } = cluster;
  const wait = nextTry ? Math.ceil((Date.parse(nextTry) - now.value) / 1000) : null;
  const TODO: Record<string, string> = {
    unreachable: t("Test it step by step: the first step that fails is the place to look. Other clusters are not affected."),
    unauthorised: t("Its credentials cannot be had, or are refused: renew them in its kubeconfig or Secret."),
    misconfigured: t("Correct its kubeconfig; it is read again by itself."),
    disabled: t("Enable it to connect."),
    connecting: t("It is being connected to."),
  };
  return (
    <div class={`notice ${clusterTone(state) === "bad" ? "bad" : "warn"}`} role="status">
      <div class="grow break">
        <p><strong>{state}</strong>{why ? `: ${why}` : ""}</p>
        <p class="muted">
          {TODO[state] ?? ""}
          {wait !== null && state !== "disabled" && ` ${t("The next try is {what}.", { what: wait > 0 ? t("in {wait} s", { wait }) : t("now") })}`}
          {lastSeen && <>{" "}{rich("It last answered {age}.", { age: <Age time={lastSeen} ago /> })}</>}
        </p>
      </div>
    </div>
  );
}

function Facts({ of }: { of: Cluster }) {
  const labels = Object.entries(of.labels ?? {});
  return (
    <dl class="facts">
      {of.version && <div><dt>{t("Version")}</dt><dd>{of.version}</dd></div>}
      {of.latencyMs !== null && of.latencyMs !== undefined && <div><dt>{t("Latency")}</dt><dd class="number">{latency(of.latencyMs)}</dd></div>}
      {of.server && <div><dt>{t("Server")}</dt><dd class="mono break">{of.server}</dd></div>}
      <div><dt>{t("From")}</dt><dd class="break">{of.source}</dd></div>
      {of.impersonating && <div><dt>{t("Acts as")}</dt><dd>{t("each user, under their own name")}</dd></div>}
      {labels.length > 0 && <div><dt>{t("Labels")}</dt><dd class="break">{labels.map(([key, value]) => `${key}=${value}`).join(", ")}</dd></div>}
    </dl>
  );
}

interface Summary {
  nodes?: { total: number; ready: number; cordoned: number; allocatable: Usage; pods: number } | null;
  pods?: { total: number; byPhase: Record<string, number>; notReady: number; restarts: number; requests: Usage; limits: Usage } | null;
  workloads: { kind: string; total: number; ready: number }[];
}

const PHASES: [string, string][] = [["Running", "ok"], ["Succeeded", ""], ["Pending", "warn"], ["Failed", "bad"], ["Unknown", "bad"]];

function Overview({ name }: { name: string }) {
  const read = useFetch(`overview ${name}`, (signal) => api.get<Summary>(path`/clusters/${name}/overview`, { signal }), 10_000);
  const usage = useUsage([name], "nodes");
  const used = usage && [...usage.values()].reduce((sum, one) => ({ cpuMillis: sum.cpuMillis + one.cpuMillis, memoryBytes: sum.memoryBytes + one.memoryBytes }), { cpuMillis: 0, memoryBytes: 0 });
  return (
    <Loaded of={read}>
      {({ nodes, pods, workloads }) => (
        <div class="cards">
          {nodes && (
            <section class="card">
              <header><h2 class="grow">Nodes</h2><a href={clusterPage(name, "nodes")}>{t("All")}</a></header>
              <div class="body stack">
                <p class="figure">{rich("{ready} of {total} ready", { ready: <strong class={nodes.ready < nodes.total ? "bad-text" : ""}>{nodes.ready}</strong>, total: nodes.total })}{nodes.cordoned ? <span class="warn-text">{t(", {cordoned} cordoned", { cordoned: nodes.cordoned })}</span> : ""}</p>
                {pods && <Bar label={t("CPU requested")} of={pods.requests.cpuMillis} all={nodes.allocatable.cpuMillis} say={cores} />}
                {used && used.cpuMillis > 0 && <Bar label={t("CPU used")} of={used.cpuMillis} all={nodes.allocatable.cpuMillis} say={cores} />}
                {pods && <Bar label={t("Memory requested")} of={pods.requests.memoryBytes} all={nodes.allocatable.memoryBytes} say={memory} />}
                {used && used.memoryBytes > 0 && <Bar label={t("Memory used")} of={used.memoryBytes} all={nodes.allocatable.memoryBytes} say={memory} />}
                {pods && <Bar label="Pods" of={pods.total} all={nodes.pods} say={(count) => count.toLocaleString(locale)} />}
              </div>
            </section>
          )}
          {pods && (
            <section class="card">
              <header><h2 class="grow">Pods</h2><a href={explore([name], "pods")}>{t("All")}</a></header>
              <div class="body stack">
                <p class="figure"><strong>{pods.total.toLocaleString(locale)}</strong>{pods.notReady ? <>, <a class="warn-text" href={explore([name], "pods", { q: "-running -completed" })}>{t("{notReady} not ready", { notReady: pods.notReady.toLocaleString(locale) })}</a></> : ""}</p>
                <span class="phases" aria-hidden="true">
                  {PHASES.map(([phase, tone]) => (pods.byPhase[phase] ? <span key={phase} class={tone} style={{ flexGrow: pods.byPhase[phase] }} /> : null))}
                </span>
                <ul class="small muted phase-list">
                  {PHASES.map(([phase, tone]) => (pods.byPhase[phase] ? <li key={phase}><span class={`dot ${tone}`} /> {phase} <span class="number">{pods.byPhase[phase]?.toLocaleString(locale)}</span></li> : null))}
                </ul>
                <p class="muted">{t("{restarts} restarts in all", { restarts: pods.restarts.toLocaleString(locale) })}</p>
              </div>
            </section>
          )}
          {workloads.length > 0 && (
            <section class="card">
              <header><h2>{t("Workloads")}</h2></header>
              <ul class="body stack">
                {workloads.map(({ kind, total, ready }) => (
                  <li key={kind} class="row"><a class="grow" href={explore([name], `${kind}.apps`)}>{kind}</a><span class={`number ${ready < total ? "warn-text" : "muted"}`}>{total ? t("{ready} of {total} ready", { ready, total }) : t("none")}</span></li>
                ))}
              </ul>
            </section>
          )}
          {!nodes && !pods && workloads.length === 0 && <p class="muted">{t("Your roles let you list none of its nodes, pods and workloads.")}</p>}
          <EventsOf name={name} most={8} />
        </div>
      )}
    </Loaded>
  );
}

function Bar({ label, of, all, say }: { label: string; of: number; all: number; say: (value: number) => string }) {
  return (
    <div class="bar">
      <span class="muted">{label}</span>
      <Meter label={label} of={of} all={all} text={t("{say} of {say2}", { say: say(of), say2: say(all) })} />
    </div>
  );
}

function Nodes({ name }: { name: string }) {
  const nodes = useNodes([name], true);
  const usage = useUsage([name], "nodes");
  if (!nodes) return <Loading />;
  const used = (node: NodeFacts) => usage?.get(factKey(name, null, node.name));
  const measured = (usage?.size ?? 0) > 0;
  const columns: TableColumn<NodeFacts>[] = [
    { id: "name", title: "Node", width: "minmax(180px, 1.4fr)", cell: (node) => <span class="row"><a class="clip" href={object({ cluster: name, kind: "nodes", name: node.name })}>{node.name}</a>{node.cordoned && <span class="tag warn">{t("cordoned")}</span>}</span> },
    { id: "cpu", title: measured ? t("CPU used") : "CPU", width: "minmax(150px, 1fr)", cell: (node) => <Meter label="CPU" of={used(node)?.cpuMillis ?? 0} all={measured ? node.allocatable.cpuMillis : 0} text={measured ? t("{cores} of {cores2}", { cores: cores(used(node)?.cpuMillis ?? 0), cores2: cores(node.allocatable.cpuMillis) }) : cores(node.allocatable.cpuMillis)} /> },
    { id: "memory", title: measured ? t("Memory used") : t("Memory"), width: "minmax(170px, 1fr)", cell: (node) => <Meter label={t("Memory")} of={used(node)?.memoryBytes ?? 0} all={measured ? node.allocatable.memoryBytes : 0} text={measured ? t("{memory} of {memory2}", { memory: memory(used(node)?.memoryBytes ?? 0), memory2: memory(node.allocatable.memoryBytes) }) : memory(node.allocatable.memoryBytes)} /> },
    { id: "taints", title: "Taints", width: "minmax(180px, 2fr)", wrap: true, cell: ({ taints }) => <Taints of={taints} /> },
  ];
  return (
    <>
      <p class="muted">
        {rich("{what}{link} has state, roles and versions, and can cordon and drain.", { what: measured ? "" : `${t("This cluster has no metrics server: what nodes use is not known.")} `, link: <a href={explore([name], "nodes")}>{t("The live table")}</a> })}
      </p>
      {nodes.size ? <ShortTable label="Nodes" columns={columns} rows={[...nodes.values()]} rowKey={(node) => node.name} /> : <Empty title={t("No node")}><p>{t("There is none, or your roles do not let you list nodes.")}</p></Empty>}
    </>
  );
}

const SHOWN = 300;

function EventsOf({ name, most = SHOWN }: { name: string; most?: number }) {
  const read = useFetch(`events ${name}`, (signal) => api.get<Events>(path`/clusters/${name}/events`, { signal }), 10_000);
  const few = most < SHOWN;
  const table = (
    <Loaded of={read}>
      {({ events }) => {
        const wanted = few ? events.filter(({ type }) => type === "Warning") : events;
        return wanted.length ? (
          <ul class="lines event-lines">
            {wanted.slice(0, most).map((event, index) => (
              <li key={index}>
                <span class={`dot ${event.type === "Warning" ? "warn" : ""}`} />
                <span class="grow">
                  <strong>{event.reason}</strong> <span class="muted">{event.object.kind.toLowerCase()}/{event.object.name}</span>{event.count > 1 && <span class="faint"> ×{event.count}</span>}
                  <p class="muted break">{event.message}</p>
                </span>
                <span class="faint"><Age time={event.lastSeen} /></span>
              </li>
            ))}
          </ul>
        ) : (
          <p class="muted">{t("{what} Kubernetes forgets events after an hour, mostly.", { what: few ? t("No warning is known.") : t("No event is known.") })}</p>
        );
      }}
    </Loaded>
  );
  if (!few) return <><p class="muted">{rich("{link} follows them and filters.", { link: <a href={href("/events", { clusters: name })}>{t("The live table")}</a> })}</p>{table}</>;
  return (
    <section class="card wide">
      <header><h2 class="grow">{t("Latest warnings")}</h2><a href={clusterPage(name, "events")}>{t("All events")}</a></header>
      <div class="body">{table}</div>
    </section>
  );
}
