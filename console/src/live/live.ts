/** The page's side of the worker: hooks that follow rows and topics while the tab can be seen. */
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ProblemBody } from "../api/schema";
import { askWho, session } from "../api/session";
import type { FromWorker, Link, Row, RowsUpdate, ServerMessage, Subscription, ToWorker, View } from "./protocol";

/** How the connection to Fairlead itself stands. */
export const link = signal<Link>({ state: "connecting", since: Date.now() });

interface Target {
  rows?: (update: RowsUpdate) => void;
  message?: (message: ServerMessage) => void;
}

const targets = new Map<number, Target>();
const asked = new Map<number, (value: unknown) => void>();
let numbers = 1;
let port: { postMessage(message: ToWorker): void } | null = null;

function receive({ data }: MessageEvent<FromWorker>): void {
  switch (data.type) {
    case "rows":
      targets.get(data.view)?.rows?.(data.update);
      break;
    case "message":
      targets.get(data.view)?.message?.(data.message);
      break;
    case "answer":
      asked.get(data.ask)?.(data.value);
      asked.delete(data.ask);
      break;
    case "link":
      link.value = data.link;
      break;
    case "logged-out":
      if (session.value.state === "in") void askWho();
      break;
  }
}

function worker(): { postMessage(message: ToWorker): void } {
  if (port) return port;
  if ("SharedWorker" in globalThis) {
    const made = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: "fairlead" });
    made.port.onmessage = receive;
    port = made.port;
  } else {
    const made = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    made.onmessage = receive;
    port = made;
  }
  // A page that is kept for "back" comes back as it was, and opens its views again.
  addEventListener("pagehide", () => port?.postMessage({ op: "bye" }));
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });
  return port as { postMessage(message: ToWorker): void };
}

session.subscribe(({ state }) => {
  if (state === "in") port?.postMessage({ op: "logged-in" });
});

/** Calls `then` with whether the tab can be seen, now and when that changes. */
function whileVisible(open: () => () => void): () => void {
  let close: (() => void) | null = null;
  const look = () => {
    const visible = document.visibilityState !== "hidden";
    if (visible && !close) close = open();
    else if (!visible && close) {
      close();
      close = null;
    }
  };
  look();
  document.addEventListener("visibilitychange", look);
  return () => {
    document.removeEventListener("visibilitychange", look);
    close?.();
  };
}

const NOTHING: RowsUpdate = {
  columns: [], total: 0, matched: 0, start: 0, rows: [], synced: false, states: {}, counts: {},
};

/** The rows of an update; those that are as they were are the same objects, and are not drawn again. */
function kept(old: RowsUpdate, update: RowsUpdate): Row[] {
  if (old.columns.length !== update.columns.length) return update.rows;
  const known = new Map(old.rows.map((row) => [`${row.cluster}/${row.uid}`, row]));
  return update.rows.map((row) => {
    const before = known.get(`${row.cluster}/${row.uid}`);
    return before && before.resourceVersion !== undefined && before.resourceVersion === row.resourceVersion ? before : row;
  });
}

function sameColumns(old: RowsUpdate, update: RowsUpdate): RowsUpdate["columns"] {
  const same = old.columns.length === update.columns.length && old.columns.every(({ name }, index) => name === update.columns[index]?.name);
  return same ? old.columns : update.columns;
}

export interface Rows {
  update: RowsUpdate;
  /** Shows another part of the rows. */
  range: (start: number, end: number) => void;
  /** Every row that matches. */
  all: () => Promise<Row[]>;
  /** The values of a column, with how often each occurs. */
  values: (column: string) => Promise<[string, number][]>;
}

/** Follows rows. `null` follows nothing. */
export function useRows(subscription: Subscription | null, want: Omit<View, "start" | "end">): Rows {
  const key = subscription && JSON.stringify(subscription);
  const [state, setState] = useState<{ key: string | null; update: RowsUpdate }>({ key, update: NOTHING });
  const view = useRef(0);
  const range = useRef({ start: 0, end: 80 });
  const wanted = useRef(want);
  wanted.current = want;

  useEffect(() => {
    if (!subscription) return;
    return whileVisible(() => {
      const number = numbers++;
      view.current = number;
      targets.set(number, { rows: (update) => setState((old) => ({ key, update: { ...update, columns: sameColumns(old.update, update), rows: kept(old.update, update) } })) });
      worker().postMessage({ op: "open", view: number, subscription, want: { ...wanted.current, ...range.current } });
      return () => {
        targets.delete(number);
        view.current = 0;
        worker().postMessage({ op: "close", view: number });
      };
    });
  }, [key]);

  const shape = JSON.stringify(want);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else if (view.current) worker().postMessage({ op: "want", view: view.current, want: { ...want, ...range.current } });
  }, [shape]);

  const actions = useMemo(() => {
    const ask = (op: { op: "all" } | { op: "values"; column: string }) =>
      new Promise<unknown>((resolve) => {
        if (!view.current) return resolve([]);
        const number = numbers++;
        asked.set(number, resolve);
        worker().postMessage({ ...op, view: view.current, ask: number });
      });
    return {
      range: (start: number, end: number) => {
        if (range.current.start === start && range.current.end === end) return;
        range.current = { start, end };
        if (view.current) worker().postMessage({ op: "want", view: view.current, want: { ...wanted.current, start, end } });
      },
      all: () => ask({ op: "all" }) as Promise<Row[]>,
      values: (column: string) => ask({ op: "values", column }) as Promise<[string, number][]>,
    };
  }, []);
  return { update: state.key === key ? state.update : NOTHING, ...actions };
}

export interface Topic<T> {
  data: T | undefined;
  problem: ProblemBody | undefined;
}

/** Follows a topic that tells the whole each time: `clusters`, `inflight`, `meshes`. */
export function useTopic<T>(subscription: Subscription | null): Topic<T> {
  const key = subscription && JSON.stringify(subscription);
  const [state, setState] = useState<{ key: string | null } & Topic<T>>({ key, data: undefined, problem: undefined });
  useEffect(() => {
    if (!subscription) return;
    return follow(subscription, (message) => {
      if (message.type === "data") setState({ key, data: message.data as T, problem: undefined });
      else if (message.type === "end") setState((old) => ({ key, data: old.key === key ? old.data : undefined, problem: message.problem }));
    });
  }, [key]);
  return state.key === key ? state : { data: undefined, problem: undefined };
}

/**
 * Begins what a page will follow before its code is there. The worker keeps what it hears for a moment,
 * so that the page finds it.
 */
export function warm(subscription: Subscription): void {
  if (document.visibilityState === "hidden") return;
  const view = numbers++;
  worker().postMessage({ op: "open", view, subscription, want: null });
  worker().postMessage({ op: "close", view });
}

/**
 * Follows every message of a topic, as long as the tab can be seen; `opening` is called before each time
 * that it begins. Returns what ends it.
 */
export function follow(subscription: Subscription, take: (message: ServerMessage) => void, opening?: () => void): () => void {
  return whileVisible(() => {
    opening?.();
    const number = numbers++;
    targets.set(number, { message: take });
    worker().postMessage({ op: "open", view: number, subscription, want: null });
    return () => {
      targets.delete(number);
      worker().postMessage({ op: "close", view: number });
    };
  });
}
