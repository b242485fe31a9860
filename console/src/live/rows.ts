/**
 * The rows of one subscription, and the ways in which pages look at them.
 *
 * `RowSet` holds what the server told, by cluster and uid. An `OrderedView` keeps the rows that one
 * page wants in its order: a change costs a search, not another sort.
 */
import { compileFilter, reader } from "./filter";
import type { ClusterState, Column, Row, RowsUpdate, ServerMessage, View } from "./protocol";
import type { ProblemBody } from "../api/schema";
import { comparison, place, type Compare } from "./sort";

/** From so many changed rows on, one pass over all is cheaper than a search for each. */
const MANY = 20;

interface ClusterRows {
  rows: Map<string, Row>;
  /** While a list is told: rows of before it that it has not named yet. */
  unnamed: Set<string> | null;
  synced: boolean;
  /** Where each of its cells is among all columns; null while they are the same. */
  places: number[] | null;
}

export interface Delta {
  removed: Row[];
  added: Row[];
  /** Everything may be different: columns, or a whole list. */
  all: boolean;
}

export class RowSet {
  columns: Column[] = [];
  states: Record<string, ClusterState> = {};
  problem: ProblemBody | undefined;
  readonly #clusters = new Map<string, ClusterRows>();

  get size(): number {
    let size = 0;
    for (const { rows } of this.#clusters.values()) size += rows.size;
    return size;
  }

  get synced(): boolean {
    const waiting = Object.entries(this.states).some(
      ([cluster, { state }]) => state === "connecting" && !this.#clusters.get(cluster)?.synced,
    );
    const parts = [...this.#clusters.values()];
    return !waiting && parts.length > 0 && parts.every((part) => part.synced);
  }

  get counts(): Record<string, number> {
    return Object.fromEntries([...this.#clusters].map(([name, { rows }]) => [name, rows.size]));
  }

  *all(): Generator<Row> {
    for (const { rows } of this.#clusters.values()) yield* rows.values();
  }

  #of(cluster: string): ClusterRows {
    let found = this.#clusters.get(cluster);
    if (!found) {
      found = { rows: new Map(), unnamed: null, synced: false, places: null };
      this.#clusters.set(cluster, found);
    }
    return found;
  }

  /** Takes what the server says; returns what changed. */
  take(message: ServerMessage): Delta {
    const cluster = message.cluster ?? "";
    const touched = new Map<string, Row | undefined>();
    const all = this.#take(message, cluster, touched);
    const delta: Delta = { removed: [], added: [], all };
    // A row that was touched twice in one message counts once: as it was before, and as it is now.
    const rows = this.#clusters.get(cluster)?.rows;
    for (const [uid, before] of touched) {
      const after = rows?.get(uid);
      if (before) delta.removed.push(before);
      if (after) delta.added.push(after);
    }
    return delta;
  }

  #take(message: ServerMessage, cluster: string, delta: Map<string, Row | undefined>): boolean {
    switch (message.type) {
      case "columns":
        this.#columns(this.#of(cluster), message.columns);
        return true;
      case "reset": {
        // The rows stay until the new list is complete: nothing flickers.
        const part = this.#of(cluster);
        part.unnamed = new Set(part.rows.keys());
        part.synced = false;
        break;
      }
      case "rows":
        this.#apply(cluster, message.rows, delta);
        break;
      case "synced": {
        const part = this.#of(cluster);
        for (const uid of part.unnamed ?? []) this.#remove(part, uid, delta);
        part.unnamed = null;
        part.synced = true;
        break;
      }
      case "changes":
        this.#apply(cluster, message.applied ?? [], delta);
        for (const uid of message.deleted ?? []) this.#remove(this.#of(cluster), uid, delta);
        break;
      case "state": {
        const { state, since, why, nextTryAt, latencyMs } = message;
        this.states = {
          ...this.states,
          [cluster]: {
            state,
            ...(since ? { since } : {}),
            ...(why ? { why } : {}),
            ...(nextTryAt ? { nextTryAt } : {}),
            ...(latencyMs !== undefined ? { latencyMs } : {}),
          },
        };
        break;
      }
      case "end":
        if (!message.cluster) this.problem = message.problem;
        else {
          // What it told is no longer kept up to date, nor may it be shown if rights were lost.
          const part = this.#of(cluster);
          for (const uid of [...part.rows.keys()]) this.#remove(part, uid, delta);
          part.synced = true;
          const why = message.problem?.detail ?? "it ended";
          this.states = { ...this.states, [cluster]: { state: "refused", why } };
        }
        break;
    }
    return false;
  }

  /** Clusters of other versions have other columns: all of them are shown, each once. */
  #columns(part: ClusterRows, columns: Column[]): void {
    const all = [...this.columns];
    const places = columns.map((column) => {
      const at = all.findIndex(({ name }) => name === column.name);
      return at >= 0 ? at : all.push(column) - 1;
    });
    this.columns = all;
    part.places = places.every((at, index) => at === index) ? null : places;
  }

  #apply(cluster: string, rows: Row[], delta: Map<string, Row | undefined>): void {
    const part = this.#of(cluster);
    for (const row of rows) {
      row.cluster = cluster;
      row.labels ??= {};
      if (part.places) {
        const cells: unknown[] = [];
        part.places.forEach((at, index) => {
          cells[at] = row.cells[index];
        });
        row.cells = cells;
      }
      const before = part.rows.get(row.uid);
      if (!delta.has(row.uid)) delta.set(row.uid, before);
      part.rows.set(row.uid, row);
      part.unnamed?.delete(row.uid);
    }
  }

  #remove(part: ClusterRows, uid: string, delta: Map<string, Row | undefined>): void {
    const before = part.rows.get(uid);
    if (!before) return;
    part.rows.delete(uid);
    part.unnamed?.delete(uid);
    if (!delta.has(uid)) delta.set(uid, before);
  }
}

export class OrderedView {
  want: View;
  filterProblem: string | undefined;
  readonly #set: RowSet;
  #rows: Row[] = [];
  #compare: Compare = () => 0;
  #keep: (row: Row) => boolean = () => true;

  constructor(set: RowSet, want: View) {
    this.#set = set;
    this.want = want;
    this.rebuild();
  }

  /** Changes what is wanted; sorts again only if that is different. */
  change(want: View): void {
    const same = ["filter", "sort", "only"] as const;
    const keeps = same.every((part) => JSON.stringify(this.want[part]) === JSON.stringify(want[part]));
    this.want = want;
    if (!keeps) this.rebuild();
  }

  rebuild(): void {
    const { columns } = this.#set;
    this.#compare = comparison(this.want.sort, columns);
    const { test, problem } = compileFilter(this.want.filter, columns);
    this.filterProblem = problem;
    const only = Object.entries(this.want.only).flatMap(([column, values]) => {
      const read = reader(column, columns);
      const wanted = new Set(values);
      return read && values.length ? [(row: Row) => wanted.has(read(row))] : [];
    });
    this.#keep = (row) => (!test || test(row)) && only.every((one) => one(row));
    this.#rows = [...this.#set.all()].filter(this.#keep).sort(this.#compare);
  }

  take({ removed, added, all }: Delta): void {
    if (all) {
      this.rebuild();
      return;
    }
    if (removed.length + added.length > MANY) {
      const gone = new Set(removed);
      const stay = gone.size ? this.#rows.filter((row) => !gone.has(row)) : this.#rows;
      this.#rows = merged(stay, added.filter(this.#keep).sort(this.#compare), this.#compare);
      return;
    }
    for (const row of removed) {
      const at = place(this.#rows, row, this.#compare);
      if (this.#rows[at] === row) this.#rows.splice(at, 1);
    }
    for (const row of added) {
      if (this.#keep(row)) this.#rows.splice(place(this.#rows, row, this.#compare), 0, row);
    }
  }

  get rows(): readonly Row[] {
    return this.#rows;
  }

  /** The values that a column has among all rows, the most frequent first. */
  values(column: string): [string, number][] {
    const read = reader(column, this.#set.columns);
    if (!read) return [];
    const counts = new Map<string, number>();
    for (const row of this.#set.all()) {
      const value = read(row);
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 200);
  }

  update(): RowsUpdate {
    const set = this.#set;
    const start = Math.max(0, Math.min(this.want.start, this.#rows.length - 1));
    return {
      columns: set.columns,
      total: set.size,
      matched: this.#rows.length,
      start,
      rows: this.#rows.slice(start, this.want.end),
      synced: set.synced,
      states: set.states,
      counts: set.counts,
      ...(set.problem ? { problem: set.problem } : {}),
      ...(this.filterProblem ? { filterProblem: this.filterProblem } : {}),
    };
  }
}

/** Two parts that are in order, as one: a page of a long list costs a pass, not another sort of all. */
function merged(a: Row[], b: Row[], compare: Compare): Row[] {
  if (!b.length) return a;
  if (!a.length) return b;
  const all: Row[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) all.push(compare(a[i] as Row, b[j] as Row) <= 0 ? (a[i++] as Row) : (b[j++] as Row));
  while (i < a.length) all.push(a[i++] as Row);
  while (j < b.length) all.push(b[j++] as Row);
  return all;
}
