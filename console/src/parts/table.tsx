/**
 * Tables. `VirtualTable` has elements only for the rows that can be seen, however many there are;
 * `ShortTable` is for lists of some dozens.
 */
import type { ComponentChildren } from "preact";
import { t } from "../language";
import { memo } from "./memo";
import { assignSlots } from "./slots";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useKeys, type Key } from "../keys";
import { Down, Up } from "./icons";

/** Must be `--row` of the design tokens. */
const ROW = 30;
const HEAD = 33;
/** Rows beyond either edge, so that a quick scroll shows no gap; the sum stays below 120. */
const BEYOND = 8;
const MOST = 110;

export interface TableColumn<T> {
  id: string;
  title: ComponentChildren;
  /** A track of CSS grid: `minmax(120px, 2fr)`, `80px`. */
  width: string;
  end?: boolean;
  wrap?: boolean;
  /** Whether a click on the title sorts. */
  sorts?: boolean;
  /** Beside the title: the column's filter. */
  extra?: ComponentChildren;
  cell: (row: T) => ComponentChildren;
}

export interface Sorting {
  sort: string[];
  onSort: (sort: string[]) => void;
}

/** The tracks of the grid, and the least width that they need: every row has the same. */
function tracks<T>(columns: TableColumn<T>[]): Record<string, string> {
  const least = columns.reduce((sum, { width }) => sum + Number(/(\d+)px/.exec(width)?.[1] ?? 80), 0);
  return { "--columns": columns.map(({ width }) => width).join(" "), "--least": `${least}px` };
}

interface HeadProps<T> extends Partial<Sorting> {
  columns: TableColumn<T>[];
}

function Head<T>({ columns, sort, onSort }: HeadProps<T>) {
  const [first] = sort ?? [];
  return (
    <div class="head" role="row" aria-rowindex={1}>
      {columns.map(({ id, title, end, sorts, extra }) => {
        const way = first === id ? "ascending" : first === `-${id}` ? "descending" : undefined;
        const turn = () => onSort?.(way === "ascending" ? [`-${id}`] : way === "descending" ? [] : [id]);
        return (
          <div key={id} class={`th${end ? " end" : ""}`} role="columnheader" {...(way ? { "aria-sort": way } : {})}>
            {sorts && onSort ? (
              <button type="button" class={`clip${way ? " on" : ""}`} {...(typeof title === "string" ? { title } : {})} onClick={turn}>
                {title}
                {way === "ascending" ? <Up size={12} /> : way === "descending" ? <Down size={12} /> : null}
              </button>
            ) : typeof title === "string" ? (
              <span class="clip" title={title}>{title}</span>
            ) : (
              title
            )}
            {extra}
          </div>
        );
      })}
    </div>
  );
}

interface RowProps<T> {
  row: T | undefined;
  name: string | undefined;
  index: number;
  columns: TableColumn<T>[];
  at: boolean;
  stale: boolean;
  onOpen?: ((row: T, event: MouseEvent) => void) | undefined;
  /** Changes when cells must be drawn again although the row is the same. */
  version: unknown;
}

function plainRow<T>({ row, name, index, columns, at, stale, onOpen }: RowProps<T>) {
  return (
    <div
      class={`tr${at ? " at" : ""}${stale ? " stale" : ""}`}
      role="row"
      data-row={name}
      aria-rowindex={index + 2}
      aria-selected={at}
      style={{ transform: `translateY(${index * ROW}px)` }}
      onClick={row && onOpen ? (event) => onOpen(row, event) : undefined}
    >
      {columns.map(({ id, end, cell }) => (
        <div key={id} class={`td${end ? " end number" : ""}`} role="gridcell">
          {row ? cell(row) : null}
        </div>
      ))}
    </div>
  );
}

// Rows that did not change are not drawn again: hundreds of changes a second touch a few of them.
const TableRow = memo(plainRow) as typeof plainRow;

export interface VirtualTableProps<T> extends Partial<Sorting> {
  label: string;
  columns: TableColumn<T>[];
  /** How many rows there are in all. */
  count: number;
  /** The row at a place; undefined where it has not come yet. */
  row: (index: number) => T | undefined;
  /** Names a row: `data-row` of its element. */
  rowKey: (row: T) => string;
  /** Called with the part that is shown. */
  onRange?: (start: number, end: number) => void;
  /** The row that keys are about. */
  at: number;
  onAt: (index: number) => void;
  onOpen?: (row: T, event?: MouseEvent) => void;
  isStale?: (row: T) => boolean;
  /** Keys about the row at hand, besides j, k, Enter. */
  keys?: (Omit<Key, "run"> & { run: (row: T) => void })[];
  /** Shown in place of rows. */
  children?: ComponentChildren;
  /** Redraws the rows when it changes. */
  version?: unknown;
}

export function VirtualTable<T>(props: VirtualTableProps<T>) {
  const { columns, count, at, onAt, onOpen } = props;
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ start: 0, end: 60 });

  const measure = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor((element.scrollTop - HEAD) / ROW) - BEYOND);
    const shown = Math.min(MOST, Math.ceil(element.clientHeight / ROW) + 2 * BEYOND);
    // In steps, so that a scroll by a pixel is no new range.
    const start = first - (first % 4);
    setRange((old) => (old.start === start && old.end === start + shown ? old : { start, end: start + shown }));
  };

  useLayoutEffect(measure, []);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => props.onRange?.(range.start, range.end), [range.start, range.end]);

  const show = (index: number) => {
    const element = box.current;
    if (!element) return;
    const top = index * ROW;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + ROW + HEAD > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + ROW + HEAD - element.clientHeight;
    }
  };
  const go = (index: number) => {
    if (!count) return;
    const next = Math.max(0, Math.min(count - 1, index));
    onAt(next);
    show(next);
  };
  const page = () => Math.max(1, Math.floor((box.current?.clientHeight ?? 300) / ROW) - 2);
  const withRow = (run: (row: T) => void) => () => {
    const row = props.row(at);
    if (row) run(row);
  };
  useKeys([
    { key: "j", does: t("next row"), run: () => go(at + 1) },
    { key: "k", does: t("previous row"), run: () => go(at - 1) },
    { key: "ArrowDown", does: t("next row"), run: () => go(at + 1), hidden: true },
    { key: "ArrowUp", does: t("previous row"), run: () => go(at - 1), hidden: true },
    { key: "PageDown", does: t("a page down"), run: () => go(at + page()), hidden: true },
    { key: "PageUp", does: t("a page up"), run: () => go(at - page()), hidden: true },
    { key: "g", does: t("first row"), run: () => go(0) },
    { key: "G", does: t("last row"), run: () => go(count - 1) },
    ...(onOpen ? [{ key: "Enter", does: t("open"), run: withRow((row) => onOpen(row)) }] : []),
    ...(props.keys ?? []).map(({ run, ...key }) => ({ ...key, run: withRow(run) })),
  ]);

  // One and the same function for all rows and draws: a row is drawn again only when it has changed.
  const opener = useRef(onOpen);
  opener.current = onOpen;
  const opens = onOpen !== undefined;
  const openRow = useCallback((row: T, event: MouseEvent) => opener.current?.(row, event), []);

  const end = Math.min(count, range.end);
  const start = Math.min(range.start, end);
  const shown = [];
  for (let index = start; index < end; index++) {
    const row = props.row(index);
    shown.push({ index, row, name: row && props.rowKey(row) });
  }
  const slots = useRef(new Map<string, number>());
  slots.current = assignSlots(slots.current, shown.map(({ index, name }) => name ?? ` ${index}`));
  const drawn = [];
  for (const { index, row, name } of shown) {
    drawn.push(
      <TableRow<T>
        key={slots.current.get(name ?? ` ${index}`)}
        row={row}
        name={name}
        index={index}
        columns={columns}
        at={index === at}
        stale={row ? (props.isStale?.(row) ?? false) : false}
        onOpen={opens ? openRow : undefined}
        version={props.version}
      />,
    );
  }
  return (
    <div
      ref={box}
      class="table"
      role="grid"
      aria-label={props.label}
      aria-rowcount={count + 1}
      aria-colcount={columns.length}
      tabIndex={0}
      onScroll={measure}
      style={tracks(columns)}
    >
      <Head columns={columns} {...(props.sort ? { sort: props.sort } : {})} {...(props.onSort ? { onSort: props.onSort } : {})} />
      <div class="rows" role="rowgroup" style={{ height: `${count * ROW}px` }}>
        {drawn}
      </div>
      {props.children && (
        <div role="row">
          <div role="gridcell">{props.children}</div>
        </div>
      )}
    </div>
  );
}

export function ShortTable<T>(props: {
  label: string;
  columns: TableColumn<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  onOpen?: (row: T) => void;
}) {
  const { columns, rows, onOpen } = props;
  return (
    <div
      class="table short"
      role="table"
      aria-label={props.label}
      style={tracks(columns)}
      tabIndex={0}
    >
      <div role="rowgroup">
        <Head columns={columns} />
      </div>
      <div role="rowgroup">
        {rows.map((row) => (
          <div key={props.rowKey(row)} class="tr" role="row" onClick={onOpen ? () => onOpen(row) : undefined}>
            {columns.map(({ id, end, wrap, cell }) => (
              <div key={id} class={`td${end ? " end number" : ""}${wrap ? " wrap" : ""}`} role="cell">
                {cell(row)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
