/** One object: what it is, its YAML, its logs, a shell in it, and the evidence about it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { cordon, remove, restart, scale, suspend, trigger, useVerbs } from "../../actions/actions";
import { ContainersEditor, editContainers } from "../../actions/containers";
import { drain, DrainProgress } from "../../actions/drain";
import { setTaints } from "../../actions/taints";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Description, NodeTaint } from "../../api/schema";
import { useCan } from "../../api/session";
import { cluster as findCluster, clusterTone } from "../../fleet";
import { useKeys } from "../../keys";
import { t } from "../../language";
import { useRows } from "../../live/live";
import { Loaded, ProblemNotice } from "../../parts/problem";
import { Favourite } from "../../parts/star";
import { wordTone } from "../../parts/tone";
import { clusterPage, doctorOf, explore, NO_NAMESPACE, object, type ObjectPlace } from "../../places";
import { href, navigate, query } from "../../router";
import type { PageProps } from "../../routes";
import { Evidence } from "./evidence";
import { podSpec, selectorOf, type KubeObject } from "./kube";
import { Lazy } from "./lazy";
import { Overview } from "./overview";
import { Related } from "./related";
import { Revisions } from "./revisions";
import { Volumes } from "./volumes";
import "./object.css";

const WITH_PODS = ["deployments.apps", "statefulsets.apps", "daemonsets.apps", "replicasets.apps", "jobs.batch", "services", "replicationcontrollers"];
const WITH_SPEC = ["pods", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "replicasets.apps", "jobs.batch", "cronjobs.batch", "replicationcontrollers"];
const WITH_TEMPLATE = ["deployments.apps", "statefulsets.apps", "daemonsets.apps", "cronjobs.batch"];
const WITH_REVISIONS = ["deployments.apps", "statefulsets.apps", "daemonsets.apps"];

const NOTHING: ReturnType<typeof useVerbs> = new Set();

export default function ObjectPage({ params }: PageProps) {
  const { cluster = "", kind = "", namespace = "", name = "" } = params;
  const place: ObjectPlace = { cluster, kind, namespace: namespace === NO_NAMESPACE ? null : namespace, name };
  const tab = query.value.get("tab") ?? "overview";
  const key = `${cluster}/${kind}/${namespace}/${name}`;
  const described = useFetch(
    key,
    (signal) => api.get<Description>(path`/clusters/${cluster}/resources/${kind}/${name}/describe`, { query: { namespace: place.namespace }, signal }),
    20_000,
  );
  useChanges(place, described.reload);
  const verbs = useVerbs(kind, [place]);
  // Nothing is done to what is not there.
  const gone = described.data === undefined && described.problem?.status === 404;
  const may = gone ? NOTHING : verbs;
  const isNode = kind === "nodes";
  const [mayForward, mayNodeShell, mayCreate] = useCan([
    { cluster, namespace: place.namespace ?? null, resource: "pods", verb: "forward" },
    { cluster, resource: "nodes/shell", verb: "exec" },
    { cluster, namespace: place.namespace ?? null, resource: kind, verb: "create" },
  ]);
  const data = described.data?.object as KubeObject | undefined;
  const selector = data ? selectorOf(data) : null;
  const isPod = kind === "pods";
  // By its kind, until the object is there: a key that is pressed meanwhile is not lost.
  const selects = WITH_PODS.includes(kind) && (data === undefined || selector !== null);
  const pods = isNode || selects;
  const volumes = data === undefined ? WITH_SPEC.includes(kind) : podSpec(data) !== null;
  const logs = isPod || selects;

  const tabs: { id: string; title: string; key?: string }[] = [
    { id: "overview", title: t("Overview"), key: "d" },
    { id: "yaml", title: "YAML", key: "y" },
    ...(pods ? [{ id: "pods", title: "Pods", key: "o" }] : []),
    ...(logs ? [{ id: "logs", title: t("Logs"), key: "l" }] : []),
    ...((isPod && (may.has("exec") || tab === "shell")) || (isNode && mayNodeShell) ? [{ id: "shell", title: t("Shell"), key: "s" }] : []),
    ...(isPod && may.has("exec") && may.has("update") ? [{ id: "debug", title: t("Debug") }] : []),
    ...(isPod ? [{ id: "usage", title: t("Usage"), key: "u" }] : []),
    ...(volumes ? [{ id: "volumes", title: t("Volumes"), key: "v" }] : []),
    ...(WITH_REVISIONS.includes(kind) ? [{ id: "revisions", title: t("Revisions") }] : []),
    { id: "related", title: t("Related"), key: "r" },
    { id: "evidence", title: t("Evidence"), key: "e" },
  ];
  const to = (id: string) => object(place, id === "overview" ? undefined : { tab: id });
  useKeys([
    ...tabs.flatMap(({ id, title, key }) => (key ? [{ key, does: title, run: () => navigate(to(id)) }] : [])),
    // Pressed before it is known what one may: the server decides, and says so.
    ...(isPod && may.size === 0 ? [{ key: "s", does: t("Shell"), run: () => navigate(to("shell")), hidden: true }] : []),
    { key: "Escape", does: t("back to the table"), run: () => navigate(explore([cluster], kind, { ns: place.namespace })) },
  ]);

  const known = findCluster(cluster);
  const trouble = known && clusterTone(known.state) === "bad";
  const replicas = typeof data?.spec?.["replicas"] === "number" ? (data.spec["replicas"] as number) : null;
  const unschedulable = data?.spec?.["unschedulable"] === true;
  const content = (): ComponentChildren => {
    switch (tab) {
      case "yaml":
        return <Lazy key={key} load={() => import("./yaml")} props={{ place, mayEdit: may.has("update"), secret: kind === "secrets" }} />;
      case "logs":
        return data && logs ? <Lazy key={key} load={() => import("./logs")} props={{ place, object: data, selector }} /> : <Loaded of={described}>{() => null}</Loaded>;
      case "shell":
      case "debug":
        return data ? <Lazy key={`${key} ${tab}`} load={() => import("./shell")} props={{ place, object: data, kind: isNode ? ("node" as const) : tab === "debug" ? ("debug" as const) : ("exec" as const) }} /> : <Loaded of={described}>{() => null}</Loaded>;
      case "pods":
        return data && pods ? <Lazy key={key} load={() => import("./pods")} props={{ place, selector: isNode ? null : selector }} /> : <Loaded of={described}>{() => null}</Loaded>;
      case "usage":
        return <div class="card"><div class="body"><Lazy key={key} load={() => import("../../usage-history")} props={{ cluster, namespace: place.namespace ?? null, pod: name }} /></div></div>;
      case "volumes":
        return <Loaded of={described}>{({ object: whole }) => <Volumes place={place} object={whole as KubeObject} />}</Loaded>;
      case "revisions":
        return <Revisions key={key} place={place} mayUpdate={may.has("update")} />;
      case "related":
        return <Related key={key} place={place} />;
      case "evidence":
        return <Evidence key={key} place={place} />;
      default:
        return <div class="card"><div class="body"><Loaded of={described}>{(description) => <Overview place={place} description={description} />}</Loaded></div></div>;
    }
  };

  return (
    <div class={`page object${["yaml", "pods", "logs", "shell", "debug"].includes(tab) ? " full" : ""}`}>
      <header>
        <div class="title">
          <p class="muted small crumbs">
            <a href={clusterPage(cluster)}>{cluster}</a>
            {place.namespace && <><span class="faint">/</span><a href={explore([cluster], kind, { ns: place.namespace })}>{place.namespace}</a></>}
            <span class="faint">/</span>
            <a href={explore([cluster], kind)}>{kind.split(".")[0]}</a>
          </p>
          <h1 class="break">{name}</h1>
        </div>
        <Favourite href={object(place)} title={name} note={[kind.split(".")[0], place.namespace, cluster].filter(Boolean).join(", ")} />
        {described.data?.state && <span class={`tag ${wordTone(described.data.state)}`}>{described.data.state}</span>}
        <span class="grow" />
        {may.has("scale") && <button type="button" class="button" onClick={() => scale([place], kind, replicas)}>{t("Scale…")}</button>}
        {may.has("restart") && <button type="button" class="button" onClick={() => restart([place], kind)}>{t("Restart…")}</button>}
        {may.has("cordon") && <button type="button" class="button" onClick={() => cordon([place], !unschedulable)}>{unschedulable ? t("Uncordon…") : t("Cordon…")}</button>}
        {may.has("drain") && <button type="button" class="button" onClick={() => drain([place])}>{t("Drain…")}</button>}
        {isNode && may.has("update") && data && <button type="button" class="button" onClick={() => setTaints(place, (data.spec?.["taints"] as NodeTaint[] | undefined) ?? [], described.reload)}>{t("Taints…")}</button>}
        {WITH_TEMPLATE.includes(kind) && may.has("update") && <button type="button" class="button" onClick={() => void editContainers(place, described.reload)}>{t("Containers…")}</button>}
        {isPod && mayForward && !gone && <a class="button" href={doctorOf(place)}>{t("Ask the doctor")}</a>}
        {kind === "cronjobs.batch" && may.has("update") && (
          <>
            <button type="button" class="button" onClick={() => trigger(place)}>{t("Run now…")}</button>
            <button type="button" class="button" onClick={() => suspend(place, data?.spec?.["suspend"] !== true)}>{data?.spec?.["suspend"] === true ? t("Resume…") : t("Suspend…")}</button>
          </>
        )}
        {mayCreate && !gone && <a class="button" href={href("/create", { from: `${cluster}/${kind}/${place.namespace ?? NO_NAMESPACE}/${name}`, cluster, ns: place.namespace })}>{t("Clone…")}</a>}
        {may.has("delete") && <button type="button" class="button danger" onClick={() => remove([place], kind, () => navigate(explore([cluster], kind, { ns: place.namespace })))}>{t("Delete…")}</button>}
      </header>
      {trouble && (
        <div class="notice warn"><p>{t("{cluster} is {state}{what}.", { cluster, state: known.state, what: known.why ? `: ${known.why}` : "" })}</p></div>
      )}
      <nav class="tabs" aria-label={t("Parts of the object")}>
        {tabs.map(({ id, title }) => (
          <a key={id} href={to(id)} {...(id === tab ? { "aria-current": "page" as const } : {})}>{title}</a>
        ))}
      </nav>
      {described.data && described.problem && tab !== "overview" && <ProblemNotice problem={described.problem} again={described.reload} />}
      {content()}
      <DrainProgress />
      <ContainersEditor />
    </div>
  );
}

/** Reads again when the object has changed, at most once a second. */
function useChanges({ cluster, kind, namespace, name }: ObjectPlace, reload: () => void): void {
  const { update } = useRows(
    { topic: "rows", clusters: [cluster], kind, fields: `metadata.name=${name}`, ...(namespace ? { namespaces: [namespace] } : {}) },
    { filter: "", sort: [], only: {} },
  );
  const version = update.rows[0]?.resourceVersion ?? (update.synced ? "gone" : null);
  const first = useRef<string | null>(null);
  useEffect(() => {
    if (version === null) return;
    if (first.current === null || first.current === version) {
      first.current = version;
      return;
    }
    first.current = version;
    const timer = setTimeout(reload, 400);
    return () => clearTimeout(timer);
  }, [version]);
}
