/** What Kubernetes says that happened, live, in all chosen clusters; the newest first. */
import { useMemo, useState } from "preact/hooks";
import { fleet, kindPath, kindsOf, resolve } from "../../fleet";
import { useKeys } from "../../keys";
import { locale, t } from "../../language";
import { useRows } from "../../live/live";
import type { Column, Row } from "../../live/protocol";
import { selection } from "../../nav";
import { bodyProblem, Empty, Loading, NoCluster, ProblemNotice } from "../../parts/problem";
import { VirtualTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast, toastProblem } from "../../parts/toast";
import { object } from "../../places";
import { navigate, query, setQuery } from "../../router";
import { NamespaceChooser } from "../explore/namespaces";
import { Strip } from "../explore/strip";
import "../explore/explore.css";

function cell(columns: Column[], row: Row, name: string): string {
  const value = row.cells[columns.findIndex((column) => column.name === name)];
  return value === null || value === undefined ? "" : String(value);
}

export default function Events() {
  const names = resolve(selection());
  const params = query.value;
  const filter = params.get("q") ?? "";
  const warnings = params.get("type") === "Warning";
  const namespaces = useMemo(() => (params.get("ns") ?? "").split(",").filter(Boolean), [params]);
  const [at, setAt] = useState(0);
  const rows = useRows(
    fleet.value && names.length ? { topic: "events", clusters: names, ...(namespaces.length ? { namespaces } : {}) } : null,
    { filter, sort: ["-Last Seen"], only: warnings ? { Type: ["Warning"] } : {} },
  );
  const { update } = rows;
  useKeys([
    { key: "/", does: t("filter"), run: () => document.getElementById("filter")?.focus() },
    { key: "w", does: t("warnings only"), run: () => setQuery({ type: warnings ? null : "Warning" }) },
    { key: "Escape", does: t("clear"), run: () => setQuery({ q: null }) },
  ]);
  const open = (row: Row) => {
    const [kind = "", ...rest] = cell(update.columns, row, "Object").split("/");
    kindsOf(row.cluster)
      .then((kinds) => {
        const found = kinds.find((one) => one.kind.toLowerCase() === kind.toLowerCase() && one.verbs.includes("get"));
        if (found) navigate(object({ cluster: row.cluster, kind: kindPath(found), namespace: found.namespaced ? row.namespace : null, name: rest.join("/") }));
        else toast(t("{cluster} serves no kind {kind}.", { cluster: row.cluster, kind }), "info");
      })
      .catch((error: unknown) => toastProblem(error));
  };
  const columns = useMemo((): TableColumn<Row>[] => {
    const read = (name: string) => (row: Row) => cell(update.columns, row, name);
    const [seen, type, reason, about, message, count] = ["Last Seen", "Type", "Reason", "Object", "Message", "Count"].map(read) as [(row: Row) => string, (row: Row) => string, (row: Row) => string, (row: Row) => string, (row: Row) => string, (row: Row) => string];
    return [
      { id: "seen", title: t("Last"), width: "72px", end: true, cell: (row) => <Age time={seen(row)} /> },
      { id: "reason", title: t("Reason"), width: "minmax(110px, .9fr)", cell: (row) => <span class={type(row) === "Warning" ? "warn-text" : ""}>{type(row) === "Warning" && <span class="dot warn" style={{ marginRight: "7px" }} />}{reason(row)}</span> },
      { id: "object", title: t("Object"), width: "minmax(140px, 1.2fr)", cell: (row) => <span title={about(row)}>{about(row)}</span> },
      { id: "message", title: t("Message"), width: "minmax(220px, 3.4fr)", cell: (row) => <span class="muted" title={message(row)}>{message(row)}</span> },
      { id: "count", title: t("Times"), width: "64px", end: true, cell: (row) => (Number(count(row)) > 1 ? count(row) : "") },
      { id: "namespace", title: "Namespace", width: "minmax(100px, .7fr)", cell: ({ namespace }) => namespace },
      ...(names.length > 1 ? [{ id: "cluster", title: t("Cluster"), width: "minmax(96px, .6fr)", cell: ({ cluster }: Row) => cluster }] : []),
    ];
  }, [update.columns, names.length]);
  return (
    <div class="page full explore">
      <header>
        <h1>{t("Events")}</h1>
        <span class="muted number">{update.matched !== update.total ? `${t("{matched} of", { matched: update.matched.toLocaleString(locale) })} ` : ""}{update.total.toLocaleString(locale)}</span>
        <div class="filterbox">
          <input id="filter" class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter events")} spellcheck={false} value={filter} onInput={(event) => setQuery({ q: event.currentTarget.value })} onKeyDown={(event) => { if (event.key === "Enter" || event.key === "Escape") event.currentTarget.blur(); }} />
        </div>
        <NamespaceChooser clusters={names} chosen={namespaces} onChoose={(chosen) => setQuery({ ns: chosen.join(",") }, true)} />
        <label class="row"><input type="checkbox" class="check" checked={warnings} onChange={() => setQuery({ type: warnings ? null : "Warning" })} /> {t("Warnings only")}</label>
      </header>
      <Strip names={names} states={update.states} counts={update.counts} />
      {update.problem && <ProblemNotice problem={bodyProblem(update.problem)} again={() => location.reload()} />}
      <VirtualTable<Row>
        label={t("Events")}
        columns={columns}
        count={update.matched}
        row={(index) => update.rows[index - update.start]}
        rowKey={({ cluster, uid }) => `${cluster}/${uid}`}
        onRange={rows.range}
        at={Math.min(at, Math.max(0, update.matched - 1))}
        onAt={setAt}
        onOpen={open}
        version={columns}
      >
        {update.matched === 0 && !update.problem && (
          fleet.value && names.length === 0 ? <NoCluster /> : update.synced ? <Empty title={t("Nothing happened")}>{filter || warnings ? <p>{t("The filter hides {total}.", { total: update.total.toLocaleString(locale) })}</p> : <p>{t("Kubernetes forgets events after an hour, mostly.")}</p>}</Empty> : <div style={{ padding: "14px" }}><Loading lines={6} /></div>
        )}
      </VirtualTable>
    </div>
  );
}
