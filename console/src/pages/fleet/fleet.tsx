/** The fleet: a row a cluster, with its state, since when, and why. */
import { useState } from "preact/hooks";
import { session, useCan } from "../../api/session";
import type { Cluster } from "../../api/schema";
import { clusters, clusterTone, fleet, fleetProblem } from "../../fleet";
import { rich, t } from "../../language";
import { link } from "../../live/live";
import { bodyProblem, Loading, ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age, latency, now } from "../../parts/time";
import { clusterPage } from "../../places";
import { query, setQuery } from "../../router";
import { useKeys } from "../../keys";
import { ClusterMenu, TestDialog } from "./cluster";
import { FirstMinute } from "./first-minute";
import { ImportDialog, useDrop } from "./import";
import "./fleet.css";

const ORDER = ["unreachable", "unauthorised", "misconfigured", "degraded", "connecting", "ready", "disabled"];

function byTrouble(a: Cluster, b: Cluster): number {
  return ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || a.name.localeCompare(b.name, "en", { numeric: true });
}

export default function Fleet() {
  const [testing, setTesting] = useState<string | null>(null);
  const [kubeconfig, setKubeconfig] = useState<string | null>(null);
  const [mayCreate, mayChange, mayDelete] = useCan([
    { cluster: "-", resource: "clusters.fairlead.dev", verb: "create" },
    { cluster: "-", resource: "clusters.fairlead.dev", verb: "update" },
    { cluster: "-", resource: "clusters.fairlead.dev", verb: "delete" },
  ]);
  const drop = useDrop(mayCreate ? setKubeconfig : null);
  const text = query.value.get("q") ?? "";
  const state = query.value.get("state");
  const all = clusters.value;
  const shown = all
    .filter((one) => !state || one.state === state)
    .filter((one) => !text || [one.name, one.state, one.why, one.version, one.source, one.server, ...Object.entries(one.labels ?? {}).map(([key, value]) => `${key}=${value}`)].some((part) => part?.toLowerCase().includes(text.toLowerCase())))
    .sort(byTrouble);
  useKeys([{ key: "/", does: t("filter"), run: () => document.getElementById("fleet-filter")?.focus() }]);
  const states = ORDER.map((name) => ({ name, count: all.filter((one) => one.state === name).length })).filter(({ count }) => count);

  const columns: TableColumn<Cluster>[] = [
    {
      id: "name",
      title: t("Cluster"),
      width: "minmax(120px, 1.3fr)",
      cell: ({ name, state, server }) => (
        <span class="row">
          <span class={`dot ${clusterTone(state)}${state === "disabled" ? " hollow" : ""}`} />
          <a class="clip" href={clusterPage(name)} title={server ?? name}>{name}</a>
        </span>
      ),
    },
    {
      id: "state",
      title: t("State"),
      width: "minmax(180px, 2.6fr)",
      wrap: true,
      cell: ({ state, why, since, nextTry }) => (
        <>
          <span class={`${clusterTone(state) === "bad" ? "bad-text" : clusterTone(state) === "warn" ? "warn-text" : ""}`}>{state}</span>
          <span class="faint">{" "}{rich("for {age}", { age: <Age time={since} /> })}</span>
          {nextTry && state !== "ready" && <NextTry at={nextTry} />}
          {why && <p class="muted">{why}</p>}
        </>
      ),
    },
    { id: "latency", title: t("Latency"), width: "82px", end: true, cell: ({ latencyMs }) => latency(latencyMs) },
    { id: "nodes", title: "Nodes", width: "68px", end: true, cell: ({ nodes }) => nodes ?? "" },
    { id: "version", title: t("Version"), width: "96px", cell: ({ version }) => <span class="clip" title={version ?? ""}>{version}</span> },
    { id: "source", title: t("From"), width: "minmax(90px, 1fr)", cell: ({ source }) => <span class="muted" title={source}>{source}</span> },
    {
      id: "menu",
      title: <span class="hidden">{t("Actions")}</span>,
      width: "118px",
      end: true,
      cell: (cluster) => (
        <span class="row" style={{ justifyContent: "flex-end", gap: "2px" }}>
          {mayChange && (
            <button type="button" class="button quiet" onClick={() => setTesting(cluster.name)}>{t("Test")}</button>
          )}
          <ClusterMenu cluster={cluster} mayChange={mayChange ?? false} mayDelete={mayDelete ?? false} />
        </span>
      ),
    },
  ];

  return (
    <div class={`page${drop.over ? " dropping" : ""}`} {...drop.on}>
      <header>
        <h1>{t("Fleet")}</h1>
        {all.length > 1 && (
          <input
            id="fleet-filter"
            class="field"
            style={{ width: "170px" }}
            placeholder={t("Filter")}
            aria-label={t("Filter clusters")}
            value={text}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
          />
        )}
        {states.length > 1 && states.map(({ name, count }) => (
          <button key={name} type="button" class="button quiet" aria-pressed={state === name} onClick={() => setQuery({ state: state === name ? null : name })}>
            <span class={`dot ${clusterTone(name)}`} /> {count} {name}
          </button>
        ))}
        <span class="grow" />
        {mayCreate && all.length > 0 && (
          <button type="button" class="button" onClick={() => setKubeconfig("")}>{t("Add cluster")}</button>
        )}
      </header>
      {fleetProblem.value && <ProblemNotice problem={bodyProblem(fleetProblem.value)} />}
      {!fleet.value && !fleetProblem.value && link.value.state !== "lost" && <Loading />}
      {fleet.value && all.length > 0 && (
        <ShortTable label={t("Clusters")} columns={columns} rows={shown} rowKey={({ name }) => name} />
      )}
      {fleet.value && all.length > 0 && shown.length === 0 && <p class="muted">{t("No cluster matches.")}</p>}
      {(fleet.value?.shadowed?.length ?? 0) > 0 && (
        <p class="muted small">
          {t("Not used, because another source has the name:")}{" "}
          {fleet.value?.shadowed?.map(({ name, source, shadowedBy }) => t("{name} of {source} ({shadowedBy})", { name, source, shadowedBy: shadowedBy ?? t("shadowed") })).join(", ")}.
        </p>
      )}
      {fleet.value && (all.length === 0 || session.value.state !== "in") && (
        <FirstMinute hint={fleet.value.hint ?? null} onAdd={mayCreate ? () => setKubeconfig("") : null} />
      )}
      {testing !== null && <TestDialog name={testing} onClose={() => setTesting(null)} />}
      {kubeconfig !== null && <ImportDialog text={kubeconfig} onClose={() => setKubeconfig(null)} />}
    </div>
  );
}

function NextTry({ at }: { at: string }) {
  const seconds = Math.ceil((Date.parse(at) - now.value) / 1000);
  return <span class="faint">{" "}{t("· next try {what}", { what: seconds > 0 ? t("in {seconds} s", { seconds }) : t("now") })}</span>;
}
