/** Helm releases of a cluster: history, values, what a release consists of, and the way back. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { asProblem } from "../../api/problem";
import { useCan } from "../../api/session";
import { t } from "../../language";
import { confirm, Dialog } from "../../parts/dialog";
import { Diff } from "../../parts/diff";
import { Empty, Loaded, Loading, ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast } from "../../parts/toast";
import { wordTone } from "../../parts/tone";
import { query, setQuery } from "../../router";
import { yamlOf } from "./yaml-of";

interface Release {
  namespace: string;
  name: string;
  revision: number;
  status: string;
  updated?: string;
}

interface Revision {
  revision: number;
  status: string;
  chart?: string;
  app_version?: string;
  description?: string;
  updated?: string;
}

interface Hook {
  kind: string;
  name: string;
  events: string[];
}

interface RollbackObject {
  apiVersion: string;
  kind: string;
  namespace?: string;
  name: string;
  outcome: string;
  diff?: string;
  problem?: { detail?: string; title?: string };
}

interface Rollback {
  revision: number;
  to: number;
  from: number;
  objects: RollbackObject[];
  hooksNotRun: Hook[];
  warnings?: string[];
}

const statusTag = (status: string) => <span class={`tag ${wordTone(status)}`}>{status}</span>;

export function Helm({ cluster }: { cluster: string }) {
  const shown = query.value.get("release");
  const read = useFetch(`helm ${cluster}`, (signal) => api.get<{ releases: Release[] }>(path`/clusters/${cluster}/helm`, { signal }), 15_000);
  const columns: TableColumn<Release>[] = [
    { id: "name", title: t("Release"), width: "minmax(180px, 1.4fr)", cell: ({ namespace, name }) => <button type="button" class="linkish" onClick={() => setQuery({ release: `${namespace}/${name}` }, true)}>{name}</button> },
    { id: "namespace", title: "Namespace", width: "minmax(130px, 1fr)", cell: ({ namespace }) => <span title={namespace}>{namespace}</span> },
    { id: "revision", title: t("Revision"), width: "84px", end: true, cell: ({ revision }) => revision },
    { id: "status", title: t("Status"), width: "140px", cell: ({ status }) => statusTag(status) },
    { id: "updated", title: t("Updated"), width: "96px", end: true, cell: ({ updated }) => <Age time={updated} ago /> },
  ];
  return (
    <Loaded of={read}>
      {({ releases }) => {
        const found = releases.find(({ namespace, name }) => `${namespace}/${name}` === shown);
        return (
          <>
            {releases.length ? <ShortTable label={t("Helm releases")} columns={columns} rows={releases} rowKey={({ namespace, name }) => `${namespace}/${name}`} /> : <Empty title={t("No Helm release")}><p>{t("Releases are read from the Secrets that Helm keeps them in; there is none that you may see.")}</p></Empty>}
            {found && <One key={shown} cluster={cluster} release={found} changed={read.reload} />}
            {shown && !found && <p class="muted">{t("There is no release {shown}.", { shown })}</p>}
          </>
        );
      }}
    </Loaded>
  );
}

function One({ cluster, release, changed }: { cluster: string; release: Release; changed: () => void }) {
  const { namespace, name } = release;
  const route = path`/clusters/${cluster}/helm/${namespace}/${name}`;
  const [looking, setLooking] = useState<{ revision: number; part: "values" | "manifest" } | null>(null);
  const [mayRollBack] = useCan([{ cluster, namespace, resource: "releases.helm.sh", verb: "update" }]);
  const read = useFetch(route, (signal) => api.get<{ revisions: Revision[] }>(`${route}/history`, { signal }));
  const columns: TableColumn<Revision>[] = [
    { id: "revision", title: t("Revision"), width: "74px", end: true, cell: ({ revision }) => revision },
    { id: "status", title: t("Status"), width: "108px", cell: ({ status }) => statusTag(status) },
    { id: "chart", title: t("Chart"), width: "minmax(120px, 1.2fr)", cell: ({ chart, app_version }) => <span title={app_version ? t("{chart}, app {app_version}", { chart: chart ?? "", app_version }) : chart}>{chart} <span class="faint">{app_version}</span></span> },
    { id: "description", title: t("What happened"), width: "minmax(110px, 1.6fr)", wrap: true, cell: ({ description }) => description },
    { id: "updated", title: t("When"), width: "76px", end: true, cell: ({ updated }) => <Age time={updated} /> },
    {
      id: "do",
      title: <span class="hidden">{t("Actions")}</span>,
      width: "268px",
      end: true,
      cell: ({ revision }) => (
        <span class="row">
          <button type="button" class="button quiet" onClick={() => setLooking({ revision, part: "values" })}>{t("Values")}</button>
          <button type="button" class="button quiet" onClick={() => setLooking({ revision, part: "manifest" })}>{t("Manifest")}</button>
          {mayRollBack && revision !== release.revision && <button type="button" class="button" onClick={() => void rollBack(route, name, revision, () => { changed(); read.reload(); })}>{t("Roll back…")}</button>}
        </span>
      ),
    },
  ];
  return (
    <section class="card" aria-label={t("Release {name}", { name })}>
      <header><h2 class="grow break">{name} <span class="muted">{t("in {namespace}", { namespace })}</span></h2><button type="button" class="button quiet" onClick={() => setQuery({ release: null })}>{t("Close")}</button></header>
      <Loaded of={read}>{({ revisions }) => <ShortTable label={t("History of {name}", { name })} columns={columns} rows={revisions} rowKey={({ revision }) => String(revision)} />}</Loaded>
      {looking && <Look key={`${looking.part} ${looking.revision}`} route={route} name={name} {...looking} onClose={() => setLooking(null)} />}
    </section>
  );
}

/** Values or manifest of a revision; what reads like a secret is masked until one asks for it. */
function Look({ route, name, revision, part, onClose }: { route: string; name: string; revision: number; part: "values" | "manifest"; onClose: () => void }) {
  const [all, setAll] = useState(false);
  const [reveal, setReveal] = useState(false);
  const read = useFetch(`${route} ${part} ${revision} ${String(all)} ${String(reveal)}`, (signal) =>
    api.get<{ values?: unknown; manifest?: string; notes?: string; hooks?: Hook[]; masked: number }>(`${route}/${part}`, { query: { revision, all: all || null, reveal: reveal || null }, signal }),
  );
  return (
    <Dialog title={t("{what} of {name}, revision {revision}", { what: part === "values" ? t("Values") : t("Manifest"), name, revision })} wide onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); onClose(); }}>
        <h1 class="break">{t("{what} of {name}, revision {revision}", { what: part === "values" ? t("Values") : t("Manifest"), name, revision })}</h1>
        <div class="row wrap">
          {part === "values" && <label class="row"><input type="checkbox" class="check" checked={all} onChange={() => setAll(!all)} /> {t("With the chart's defaults")}</label>}
          {read.data && (read.data.masked > 0 || reveal) && <button type="button" class="button" aria-pressed={reveal} onClick={() => setReveal(!reveal)}>{reveal ? t("Hide secrets") : t("Show {masked} masked", { masked: read.data.masked })}</button>}
        </div>
        <Loaded of={read}>
          {(data) => (
            <>
              <pre class="values" tabIndex={0} aria-label={part}>{part === "values" ? yamlOf(data.values) : data.manifest}</pre>
              {data.notes && <details><summary>{t("Notes")}</summary><pre class="values" tabIndex={0}>{data.notes}</pre></details>}
              {(data.hooks?.length ?? 0) > 0 && <p class="muted small break">{t("Hooks: {map}", { map: data.hooks?.map(({ kind, name, events }) => `${kind} ${name} (${events.join(", ")})`).join("; ") })}</p>}
            </>
          )}
        </Loaded>
        <footer><button type="submit" class="button primary">{t("Close")}</button></footer>
      </form>
    </Dialog>
  );
}

/** Asks the server what a rollback would do, shows it, and does it when it is confirmed by name. */
async function rollBack(route: string, name: string, to: number, done: () => void): Promise<void> {
  let planned: Rollback | null = null;
  let problem: unknown = null;
  try {
    planned = await api.post<Rollback>(`${route}/rollback`, { revision: to }, { query: { dryRun: true } });
  } catch (error) {
    problem = asProblem(error);
  }
  const failed = planned?.objects.filter(({ outcome }) => outcome === "failed") ?? [];
  confirm({
    title: t("Roll {name} back to revision {to}?", { name, to }),
    wide: true,
    text: planned ? <Plan of={planned} /> : problem ? <ProblemNotice problem={problem} /> : <Loading />,
    verb: t("Roll back"),
    danger: true,
    name,
    run: async () => {
      if (!planned) throw problem ?? new Error(t("what it would do is not known"));
      if (failed.length) throw new Error(t("{count} of its objects would fail, see above", { count: failed.length }));
      const said = await api.post<Rollback>(`${route}/rollback`, { revision: to });
      const wrong = said.objects.filter(({ outcome }) => outcome === "failed");
      toast(wrong.length ? t("{count} of {count2} objects of {name} failed.", { count: wrong.length, count2: said.objects.length, name }) : t("{name} is back at revision {to}, as revision {revision}.", { name, to, revision: said.revision }), wrong.length ? "bad" : undefined);
      done();
    },
  });
}

function Plan({ of }: { of: Rollback }) {
  const touched = of.objects.filter(({ outcome }) => outcome !== "unchanged");
  return (
    <div class="stack">
      <p>
        {t("A new revision {revision} has what revision {to} had. {what}", { revision: of.revision, to: of.to, what: touched.length ? t("{count} of {count2} objects change:", { count: touched.length, count2: of.objects.length }) : t("No object changes.") })}
      </p>
      {of.hooksNotRun.length > 0 && <div class="notice warn"><p class="break">{t("Hooks are not run: {map}.", { map: of.hooksNotRun.map(({ kind, name, events }) => `${kind} ${name} (${events.join(", ")})`).join("; ") })}</p></div>}
      {(of.warnings ?? []).map((text) => <div key={text} class="notice warn"><p class="break">{text}</p></div>)}
      <div class="plan">
        {touched.map((one) => (
          <details key={`${one.kind} ${one.namespace} ${one.name}`}>
            <summary><span class={one.outcome === "failed" || one.outcome === "deleted" ? "bad-text" : ""}>{one.outcome}</span> {one.kind} {one.name}{one.problem && <span class="bad-text">: {one.problem.detail ?? one.problem.title}</span>}</summary>
            {one.diff && <Diff text={one.diff} />}
          </details>
        ))}
      </div>
    </div>
  );
}
