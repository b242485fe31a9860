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
  /** Each row that changed once: as it was, if it was there, and as it is, if it is still there. */
  changed: { before: Row | undefined; after: Row | undefined }[];
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
    // A row that was touched twice in one message counts once: as it was before, and as it is now.
    const rows = this.#clusters.get(cluster)?.rows;
    return { changed: [...touched].map(([uid, before]) => ({ before, after: rows?.get(uid) })), all };
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
  /** In their order. Changed in place: a copy for each of ten messages a second is what would fill the memory. */
  #rows: Row[] = [];
  #told: RowsUpdate | null = null;
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

  take({ changed, all }: Delta): void {
    if (all) {
      this.rebuild();
      return;
    }
    const [removed, added]: [Row[], Row[]] = [[], []];
    for (const { before, after } of changed) {
      if (before && after && this.#replace(before, after)) continue;
      if (before && this.#keep(before)) removed.push(before);
      if (after && this.#keep(after)) added.push(after);
    }
    if (removed.length + added.length > MANY) {
      remove(this.#rows, new Set(removed));
      insert(this.#rows, added.sort(this.#compare), this.#compare);
      return;
    }
    for (const row of removed) {
      const at = place(this.#rows, row, this.#compare);
      if (this.#rows[at] === row) this.#rows.splice(at, 1);
    }
    for (const row of added) this.#rows.splice(place(this.#rows, row, this.#compare), 0, row);
  }

  /** Puts a row where it was before its change, if that is still its place. */
  #replace(before: Row, after: Row): boolean {
    if (!this.#keep(after) || this.#compare(before, after) !== 0) return false;
    const at = place(this.#rows, before, this.#compare);
    if (this.#rows[at] !== before) return false;
    this.#rows[at] = after;
    return true;
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

  /** What the page is to be told; nothing if it was told the same before. Most changes are of rows out of sight. */
  news(): RowsUpdate | null {
    const [old, update] = [this.#told, this.update()];
    if (old && isSame(old, update)) return null;
    this.#told = update;
    return update;
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

/** Whether two updates tell the same. Rows and states that changed are other objects. */
function isSame(a: RowsUpdate, b: RowsUpdate): boolean {
  const plain = ["columns", "total", "matched", "start", "synced", "states", "problem", "filterProblem"] as const;
  if (plain.some((part) => a[part] !== b[part]) || a.rows.length !== b.rows.length) return false;
  const clusters = Object.keys(b.counts);
  if (clusters.length !== Object.keys(a.counts).length || clusters.some((name) => a.counts[name] !== b.counts[name])) return false;
  return a.rows.every((row, index) => row === b.rows[index]);
}

/** Takes rows out, in one pass. */
function remove(rows: Row[], gone: Set<Row>): void {
  if (!gone.size) return;
  let kept = 0;
  for (const row of rows) if (!gone.has(row)) rows[kept++] = row;
  rows.length = kept;
}

/** Puts rows that are in order among others that are, from the end: one pass, and no further than needed. */
function insert(rows: Row[], added: Row[], compare: Compare): void {
  let [from, next] = [rows.length - 1, added.length - 1];
  for (const row of added) rows.push(row);
  for (let to = rows.length - 1; next >= 0; to--) {
    const [stays, comes] = [rows[from], added[next] as Row];
    if (from >= 0 && compare(stays as Row, comes) > 0) {
      rows[to] = stays as Row;
      from--;
    } else {
      rows[to] = comes;
      next--;
    }
  }
}
