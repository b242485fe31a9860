/** The columns of a table of objects: those of the API server, with ours before them. */
import { useState } from "preact/hooks";
import { locale, t } from "../../language";
import type { Column, Row } from "../../live/protocol";
import { isAge } from "../../live/sort";
import { Filter } from "../../parts/icons";
import { Popover } from "../../parts/popover";
import { Age } from "../../parts/time";
import { isShort, wordTone } from "../../parts/tone";
import type { TableColumn } from "../../parts/table";
import { object } from "../../places";
import { setQuery } from "../../router";
import { cores, factKey, memory, Meter, Taints, type Facts, type NodeFacts, type Usage } from "../../usage";

export function rowKey({ cluster, uid }: Row): string {
  return `${cluster}/${uid}`;
}

interface Wanted {
  columns: Column[];
  wide: boolean;
  manyClusters: boolean;
  namespaced: boolean;
  oneNamespace: boolean;
  kind: string;
  picked: Map<string, Row>;
  pick: (row: Row) => void;
  values: (column: string) => Promise<[string, number][]>;
  only: Record<string, string[]>;
  usage: Facts<Usage> | undefined;
  nodes: Facts<NodeFacts> | undefined;
  /** Without what selects, filters and sorts: a table inside another page. */
  plain?: boolean;
}

const WIDTHS: Record<string, string> = {
  ready: "78px",
  "up-to-date": "88px",
  available: "82px",
  desired: "72px",
  current: "72px",
  restarts: "108px",
  data: "60px",
  completions: "96px",
  age: "76px",
  // `CrashLoopBackOff` and `ContainerCreating` are read whole.
  status: "minmax(156px, 1fr)",
  version: "minmax(90px, .6fr)",
  message: "minmax(260px, 4fr)",
  type: "minmax(96px, .8fr)",
};

/** Columns whose values are few, and worth choosing among. */
const CHOOSABLE = /^(status|phase|type|reason|node|roles|class|storageclass|ready|reclaim policy|version|suspend)$/i;

export function columnsOf(wanted: Wanted): TableColumn<Row>[] {
  const { picked, pick, kind } = wanted;
  const extra = (column: string) => (
    <ColumnFilter column={column} values={wanted.values} chosen={wanted.only[column] ?? []} />
  );
  const own: TableColumn<Row>[] = [
    {
      id: "pick",
      title: <span class="hidden">{t("Selected")}</span>,
      width: "34px",
      cell: (row) => (
        <input type="checkbox" class="check" aria-label={t("Select {name}", { name: row.name })} checked={picked.has(rowKey(row))} onChange={() => pick(row)} />
      ),
    },
    {
      id: "Name",
      title: t("Name"),
      width: "minmax(190px, 2.4fr)",
      sorts: true,
      cell: ({ cluster, namespace, name }) => (
        <a href={object({ cluster, kind, namespace: namespace ?? null, name })} title={name}>{name}</a>
      ),
    },
  ];
  if (wanted.namespaced && !wanted.oneNamespace) {
    own.push({
      id: "Namespace",
      title: "Namespace",
      width: "minmax(110px, 1fr)",
      sorts: true,
      cell: ({ namespace }) => <span title={namespace ?? ""}>{namespace}</span>,
    });
  }
  if (wanted.manyClusters) {
    own.push({ id: "Cluster", title: t("Cluster"), width: "minmax(96px, .8fr)", sorts: true, extra: extra("Cluster"), cell: ({ cluster }) => <span title={cluster}>{cluster}</span> });
  }
  const theirs = wanted.columns.flatMap((column, index): TableColumn<Row>[] => {
    if (column.name === "Name" || column.name === "Namespace" || (column.priority > 0 && !wanted.wide)) return [];
    const lower = column.name.toLowerCase();
    const ageing = isAge(column);
    const number = column.type === "integer" || column.type === "number";
    return [
      {
        id: column.name,
        title: <span class="clip" title={column.name}>{column.name}</span>,
        width: WIDTHS[lower] ?? (number ? "84px" : "minmax(96px, 1fr)"),
        end: ageing || number,
        sorts: true,
        ...(CHOOSABLE.test(lower) ? { extra: extra(column.name) } : {}),
        cell: (row) => (ageing && row.created ? <Age time={row.created} /> : <Cell column={lower} type={column.type} value={row.cells[index]} done={row.cells.includes("Completed")} />),
      },
    ];
  });
  const all = [...own, ...theirs, ...measured(wanted)];
  if (!wanted.plain) return all;
  return all.filter(({ id }) => id !== "pick").map((column): TableColumn<Row> => ({ ...column, sorts: false, extra: null }));
}

/** What pods and nodes use, and what keeps pods off a node: the API server's own columns have neither. */
function measured({ kind, usage, nodes }: Wanted): TableColumn<Row>[] {
  const factOf = <T,>(facts: Facts<T> | undefined, { cluster, namespace, name }: Row) => facts?.get(factKey(cluster, namespace, name));
  const meter = (row: Row, label: string, part: keyof Usage, say: (value: number) => string) => {
    const used = factOf(usage, row);
    return used ? <Meter label={label} of={used[part]} all={factOf(nodes, row)?.allocatable[part] ?? 0} text={say(used[part])} /> : <span class="faint">–</span>;
  };
  const columns: TableColumn<Row>[] = [];
  if (usage?.size) {
    const width = kind === "nodes" ? "minmax(110px, .8fr)" : "78px";
    columns.push(
      { id: "CPU used", title: "CPU", width, end: kind === "pods", cell: (row) => meter(row, "CPU", "cpuMillis", cores) },
      { id: "Memory used", title: t("Memory"), width, end: kind === "pods", cell: (row) => meter(row, "Memory", "memoryBytes", memory) },
    );
  }
  if (kind === "nodes") columns.push({ id: "Taints", title: "Taints", width: "minmax(150px, 1.4fr)", cell: (row) => <Taints of={factOf(nodes, row)?.taints ?? []} /> });
  return columns;
}

export function Cell({ column, type, value, done = false }: { column: string; type: string; value: unknown; done?: boolean }) {
  if (value === null || value === undefined || value === "" || value === "<none>") return <span class="faint">–</span>;
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  if (type === "date" && /^\d{4}-\d\d-\d\dT/.test(text)) return <Age time={text} />;
  if (column === "status" || column === "phase" || column === "type" || column === "reason") {
    const tone = wordTone(text);
    return (
      <span title={text} class={tone === "bad" ? "bad-text" : tone === "warn" ? "warn-text" : ""}>
        {(column === "status" || column === "phase") && tone && <span class={`dot ${tone}`} style={{ marginRight: "7px" }} />}
        {text}
      </span>
    );
  }
  if (column === "ready" && !done && isShort(text)) return <span class="warn-text">{text}</span>;
  if (column === "restarts") return <span class={Number.parseInt(text, 10) > 0 ? "" : "faint"}>{text}</span>;
  return <span title={text}>{text}</span>;
}

function ColumnFilter({ column, values, chosen }: { column: string; values: Wanted["values"]; chosen: string[] }) {
  return (
    <Popover class={`filter${chosen.length ? " on" : ""}`} name={t("Filter by {column}", { column })} label={<Filter size={12} />}>
      {() => <Values column={column} values={values} chosen={chosen} />}
    </Popover>
  );
}

function Values({ column, values, chosen }: { column: string; values: Wanted["values"]; chosen: string[] }) {
  const [found, setFound] = useState<[string, number][] | null>(null);
  if (!found) void values(column).then(setFound);
  const toggle = (value: string) => {
    const next = chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value];
    setQuery({ [`only.${column}`]: next.join("|") });
  };
  return (
    <div class="choices" style={{ minWidth: "220px" }}>
      {found?.map(([value, count]) => (
        <label key={value} class="item">
          <input type="checkbox" class="check" checked={chosen.includes(value)} onChange={() => toggle(value)} />
          <span class="clip grow">{value || t("(empty)")}</span>
          <span class="faint number">{count.toLocaleString(locale)}</span>
        </label>
      ))}
      {found?.length === 0 && <p class="muted small" style={{ padding: "6px 9px" }}>{t("There are no values yet.")}</p>}
    </div>
  );
}
