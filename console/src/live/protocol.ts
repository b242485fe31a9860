/** What goes over the socket, and what a page and the worker say to each other. */
import type { ProblemBody } from "../api/schema";

export interface Column {
  name: string;
  type: string;
  format?: string;
  /** 0 is always shown; larger ones when wide tables are wanted. */
  priority: number;
}

export interface Row {
  cluster: string;
  uid: string;
  namespace?: string | null;
  name: string;
  /** RFC 3339. */
  created?: string;
  labels: Record<string, string>;
  /** In the order of the columns. */
  cells: unknown[];
  resourceVersion?: string;
}

/** How one cluster of a subscription stands. */
export interface ClusterState {
  /** `refused` is ours: this cluster's part has ended, `why` says why. */
  state: "connecting" | "live" | "stale" | "unreachable" | "forbidden" | "refused";
  since?: string;
  why?: string;
  nextTryAt?: string;
  latencyMs?: number;
}

export interface LogLine {
  pod: string;
  container?: string;
  at?: string;
  text: string;
  /** It was longer than is shown. */
  cut?: boolean;
}

/** Parameters of a subscription; `topic` says which others there are. */
export interface Subscription {
  topic: "rows" | "events" | "clusters" | "inflight" | "violations" | "meshes" | "log";
  [parameter: string]: unknown;
}

/** What the server says; `id` is the subscription's. */
export type ServerMessage = { id: number; cluster?: string } & (
  | { type: "columns"; columns: Column[] }
  | { type: "reset" }
  | { type: "rows"; rows: Row[] }
  | { type: "synced"; count: number; resume?: string }
  | { type: "changes"; applied?: Row[]; deleted?: string[]; resume?: string }
  | ({ type: "state" } & ClusterState)
  | { type: "end"; problem?: ProblemBody }
  | { type: "data"; data: unknown; resume?: string }
  /** `notices` say what could not be read. */
  | { type: "lines"; lines?: LogLine[]; notices?: string[]; resume?: string }
);

/** How a page wants rows: which, in which order, and which part of them. */
export interface View {
  filter: string;
  /** Column names, `-` before one turns it round: `["namespace", "-age"]`. */
  sort: string[];
  /** Values that a column may have, by column. */
  only: Record<string, string[]>;
  start: number;
  end: number;
}

/** From a page to the worker. `view` is the page's number for what it watches. */
export type ToWorker =
  | { op: "open"; view: number; subscription: Subscription; want: View | null }
  | { op: "want"; view: number; want: View }
  | { op: "close"; view: number }
  /** All rows that match, for bulk actions and downloads. */
  | { op: "all"; view: number; ask: number }
  | { op: "values"; view: number; ask: number; column: string }
  /** Somebody has logged in: the socket need not wait for its next try. */
  | { op: "logged-in" }
  | { op: "bye" };

export interface RowsUpdate {
  columns: Column[];
  /** Rows that there are, and those that the filter leaves. */
  total: number;
  matched: number;
  start: number;
  rows: Row[];
  /** Whether every cluster that answers has told all of its rows. */
  synced: boolean;
  states: Record<string, ClusterState>;
  /** Rows of each cluster. */
  counts: Record<string, number>;
  problem?: ProblemBody;
  /** Why the filter cannot be read. */
  filterProblem?: string;
}

export interface Link {
  state: "connecting" | "open" | "lost";
  /** Milliseconds since 1970. */
  since: number;
  nextTryAt?: number;
}

/** From the worker to a page. */
export type FromWorker =
  | { type: "rows"; view: number; update: RowsUpdate }
  | { type: "message"; view: number; message: ServerMessage }
  | { type: "answer"; ask: number; value: unknown }
  | { type: "link"; link: Link }
  | { type: "logged-out" };
