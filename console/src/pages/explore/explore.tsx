/** Objects of one kind in one to many clusters: a live table, who answered, a look at one, bulk actions. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Kind } from "../../api/schema";
import { useCan } from "../../api/session";
import { clusters, findKind, fleet, kindPath, kindsOf, resolve } from "../../fleet";
import { useKeys } from "../../keys";
import { locale, t } from "../../language";
import { useRows } from "../../live/live";
import type { Row } from "../../live/protocol";
import { tableSubscription } from "../../live/table";
import { isPinned, kinds as navKinds, pins, togglePin } from "../../nav";
import { Cross, Pin } from "../../parts/icons";
import { bodyProblem, Empty, Loading, NoCluster, ProblemNotice } from "../../parts/problem";
import { SaveSearch } from "../../parts/star";
import { VirtualTable } from "../../parts/table";
import { ALL, explore, object, splitClusters, type ObjectPlace } from "../../places";
import { href, navigate, query, setQuery } from "../../router";
import type { PageProps } from "../../routes";
import { useNodes, useUsage } from "../../usage";
import { BulkBar } from "./bulk";
import { columnsOf, rowKey } from "./columns";
import { NamespaceChooser } from "./namespaces";
import { Peek } from "./peek";
import { Strip } from "./strip";
import "./explore.css";

/** What the address says of the table. */
function useTableQuery() {
  const params = query.value;
  return useMemo(() => {
    const only: Record<string, string[]> = {};
    for (const [name, value] of params) if (name.startsWith("only.")) only[name.slice(5)] = value.split("|");
    return {
      filter: params.get("q") ?? "",
      sort: (params.get("sort") ?? "").split(",").filter(Boolean),
      only,
      namespaces: (params.get("ns") ?? "").split(",").filter(Boolean),
      labels: params.get("labels") ?? "",
      fields: params.get("fields") ?? "",
      wide: params.has("wide"),
      peek: params.get("peek"),
    };
  }, [params]);
}

function useKind(names: string[], wanted: string): Kind | null | undefined {
  const [found, setFound] = useState<{ wanted: string; kind: Kind | null } | null>(null);
  const ready = names.filter((name) => clusters.value.some((one) => one.name === name && ["ready", "degraded"].includes(one.state)));
  const first = ready[0];
  useEffect(() => {
    if (!first) return;
    let gone = false;
    void kindsOf(first)
      .then((kinds) => findKind(kinds, wanted) ?? null)
      .then((kind) => !gone && setFound({ wanted, kind }), () => {});
    return () => {
      gone = true;
    };
  }, [first, wanted]);
  return found?.wanted === wanted ? found.kind : undefined;
}

export default function Explore({ params }: PageProps) {
  const kind = params["kind"] ?? "";
  const selection = splitClusters(params["clusters"]);
  const names = resolve(selection);
  const table = useTableQuery();
  const served = useKind(names, kind);
  // The row at hand, once there is one, stays at hand when rows come in above it.
  const [cursor, setCursor] = useState<{ index: number; row: string | null }>({ index: 0, row: null });
  const [picked, setPicked] = useState<Map<string, Row>>(new Map());
  const title = navKinds.flatMap((group) => group.kinds).find((one) => one.kind === kind)?.title ?? served?.kind ?? kind;

  // A short name in the address becomes the whole one, so that a link means one thing.
  useEffect(() => {
    if (served && kindPath(served) !== kind) navigate(href(explore(selection, kindPath(served)), query.value), { replace: true });
  }, [served, kind]);
  useEffect(() => {
    setPicked(new Map());
    setCursor({ index: 0, row: null });
  }, [kind, params["clusters"]]);

  const waiting = selection.includes(ALL) && !fleet.value;
  const rows = useRows(
    waiting || !names.length
      ? null
      : tableSubscription(names, kind, query.value),
    { filter: table.filter, sort: table.sort, only: table.only },
  );
  const { update } = rows;

  const placeOf = ({ cluster, namespace, name }: Row): ObjectPlace => ({ cluster, kind, namespace: namespace ?? null, name });
  const open = (row: Row, tab?: string) => navigate(object(placeOf(row), tab ? { tab } : undefined));
  const peek = (row: Row) => setQuery({ peek: `${row.cluster}/${row.namespace ?? ""}/${row.name}` });
  const hold = (index: number, row: Row | undefined) => setCursor({ index, row: row ? rowKey(row) : null });
  const pick = (row: Row) =>
    setPicked((before) => {
      const next = new Map(before);
      if (!next.delete(rowKey(row))) next.set(rowKey(row), row);
      return next;
    });

  // A cluster that does not answer is not asked: its line says why.
  const answering = names.filter((name) => ["ready", "degraded"].includes(clusters.value.find((one) => one.name === name)?.state ?? ""));
  const usage = useUsage(answering, kind);
  const nodes = useNodes(answering, kind === "nodes");
  const [mayCreate] = useCan([{ cluster: answering[0] ?? "-", namespace: served?.namespaced === false ? null : "*", resource: kind, verb: "create" }]);
  const columns = useMemo(
    () =>
      columnsOf({
        columns: update.columns,
        wide: table.wide,
        manyClusters: names.length > 1,
        namespaced: served?.namespaced ?? update.rows.some(({ namespace }) => namespace),
        oneNamespace: table.namespaces.length === 1,
        kind,
        picked,
        pick,
        values: rows.values,
        only: table.only,
        usage,
        nodes,
      }),
    [update.columns, table, names.length, served, kind, picked, usage, nodes],
  );

  useKeys([
    { key: "/", does: t("filter"), run: () => document.getElementById("filter")?.focus() },
    {
      key: "Escape",
      does: t("close, clear"),
      run: () => {
        if (table.peek) setQuery({ peek: null });
        else if (picked.size) setPicked(new Map());
        else if (table.filter) setQuery({ q: null });
      },
    },
  ]);

  const move = (index: number) => {
    const row = update.rows[index - update.start];
    hold(index, row);
    if (table.peek && row) peek(row);
  };
  // The row that is looked at beside the table is the one at hand, also after a reload.
  const held = update.rows.findIndex((row) => (table.peek ? `${row.cluster}/${row.namespace ?? ""}/${row.name}` === table.peek : rowKey(row) === cursor.row));
  const shownAt = held >= 0 ? update.start + held : Math.min(cursor.index, Math.max(0, update.matched - 1));
  const stale = new Set(Object.entries(update.states).filter(([, { state }]) => state === "stale").map(([name]) => name));
  const restricted = table.filter || Object.keys(table.only).length > 0 || table.labels || table.fields;

  return (
    <div class="page full explore">
      <header>
        <h1>{title}</h1>
        <span class="muted number" role="status" aria-live="off">
          {update.matched !== update.total ? `${t("{matched} of", { matched: update.matched.toLocaleString(locale) })} ` : ""}
          <span data-total={update.total} data-synced={update.synced}>{update.total.toLocaleString(locale)}</span>
          {!update.synced && update.total > 0 ? " …" : ""}
        </span>
        <div class="filterbox">
          <input
            id="filter"
            class="field"
            type="search"
            placeholder={t("Filter: web -canary status:crash app=shop /re/")}
            aria-label={t("Filter rows")}
            spellcheck={false}
            autocomplete="off"
            value={table.filter}
            onInput={(event) => setQuery({ q: event.currentTarget.value })}
            onKeyDown={(event) => {
              if (event.key === "Enter" || event.key === "Escape") event.currentTarget.blur();
            }}
          />
        </div>
        {(served?.namespaced ?? true) && <NamespaceChooser clusters={names} chosen={table.namespaces} onChoose={(chosen) => setQuery({ ns: chosen.join(",") }, true)} />}
        {Object.entries(table.only).map(([column, values]) => (
          <button key={column} type="button" class="tag info" onClick={() => setQuery({ [`only.${column}`]: null })} aria-label={t("Remove the filter on {column}", { column })}>
            {column}: {values.join(", ") || t("empty")} <Cross size={12} />
          </button>
        ))}
        {table.labels && (
          <button type="button" class="tag info" onClick={() => setQuery({ labels: null })}>
            {table.labels} <Cross size={12} />
          </button>
        )}
        {table.fields && (
          <button type="button" class="tag info" onClick={() => setQuery({ fields: null })}>
            {table.fields} <Cross size={12} />
          </button>
        )}
        <div class="row end">
          <SaveSearch title={[title, table.filter || table.namespaces.join(", ")].filter(Boolean).join(": ")} note={selection.includes(ALL) ? t("all clusters") : selection.join(", ")} />
          <button type="button" class="button quiet" aria-pressed={table.wide} onClick={() => setQuery({ wide: table.wide ? null : "1" })}>
            {table.wide ? t("Fewer columns") : t("More columns")}
          </button>
          {mayCreate && <a class="button quiet" href={href("/create", { cluster: answering[0] ?? "", ns: table.namespaces[0] ?? "", kind: served?.kind ?? "" })}>{t("Create…")}</a>}
          {(!isPinned(kind) || pins.value.some((one) => one.kind === kind)) && (
            <button type="button" class="button quiet icon" aria-pressed={isPinned(kind)} title={isPinned(kind) ? t("Unpin") : t("Pin to the sidebar")} aria-label={t("Pin")} onClick={() => togglePin({ kind, title })}>
              <Pin />
            </button>
          )}
        </div>
      </header>
      <Strip names={names} states={update.states} counts={update.counts} />
      {update.filterProblem && <p class="warn-text small">{t("{text} is not a regular expression.", { text: update.filterProblem })}</p>}
      {update.problem && <ProblemNotice problem={bodyProblem(update.problem)} again={() => location.reload()} />}
      {picked.size > 0 && <BulkBar kind={kind} places={[...picked.values()].map(placeOf)} onAll={() => void rows.all().then((all) => setPicked(new Map(all.map((row) => [rowKey(row), row]))))} onClear={() => setPicked(new Map())} matched={update.matched} />}
      <div class="split">
        <VirtualTable<Row>
          label={title}
          columns={columns}
          count={update.matched}
          row={(index) => update.rows[index - update.start]}
          rowKey={rowKey}
          onRange={rows.range}
          at={shownAt}
          onAt={move}
          onOpen={(row, event) => {
            if (!event) return open(row);
            if ((event.target as Element).closest("a, button, input")) return;
            const index = update.rows.indexOf(row);
            if (index >= 0) hold(update.start + index, row);
            peek(row);
          }}
          isStale={({ cluster }) => stale.has(cluster)}
          sort={table.sort}
          onSort={(sort) => setQuery({ sort: sort.join(",") })}
          version={columns}
          keys={[
            { key: "p", does: t("look at the row"), run: peek },
            {
              key: "x",
              does: t("select the row"),
              run: (row: Row) => {
                hold(shownAt, row);
                pick(row);
              },
            },
            { key: "y", does: "YAML", run: (row) => open(row, "yaml") },
            { key: "d", does: t("describe"), run: (row) => open(row) },
            ...(kind === "pods" || /^(deployments|statefulsets|daemonsets|replicasets)\.apps$|^jobs\.batch$/.test(kind)
              ? [{ key: "l", does: t("logs"), run: (row: Row) => open(row, "logs") }]
              : []),
            ...(kind === "pods" ? [{ key: "s", does: t("shell"), run: (row: Row) => open(row, "shell") }] : []),
          ]}
        >
          {update.matched === 0 && !update.problem && (
            fleet.value && names.length === 0 ? <NoCluster /> : update.synced || Object.values(update.states).every(({ state }) => state !== "connecting" && state !== "live") && Object.keys(update.states).length > 0 ? (
              <Empty title={update.total ? t("Nothing matches") : served === null ? t("No cluster here serves {kind}", { kind }) : t("There is nothing here")}>
                {restricted && update.total > 0 && <p>{t("The filter hides {total}.", { total: update.total.toLocaleString(locale) })}{" "}<button type="button" class="button" onClick={() => navigate(explore(selection, kind), { replace: true })}>{t("Clear it")}</button></p>}
                {!update.total && Object.values(update.states).some(({ state }) => state !== "live") && <p>{t("The line above says which clusters did not answer.")}</p>}
              </Empty>
            ) : (
              <div style={{ padding: "14px" }}><Loading lines={6} /></div>
            )
          )}
        </VirtualTable>
        {table.peek && <Peek key={table.peek} kind={kind} of={table.peek} onClose={() => setQuery({ peek: null })} />}
      </div>
    </div>
  );
}
