/**
 * The worker that all tabs share: one socket, the rows of every subscription, their order and filter.
 *
 * A page is told the part of the rows that it shows, at most ten times a second. Two pages that look
 * at the same thing share one subscription. A subscription that nobody looks at ends after a moment,
 * so that a page that is loaded again finds it.
 */
import { OrderedView, RowSet } from "./rows";
import type { FromWorker, ServerMessage, Subscription, ToWorker, View } from "./protocol";
import { Socket } from "./socket";

/** How long rows stay after the last page has gone, in milliseconds. */
const LINGER = 10_000;
/** The shortest time between two updates of one page. */
const EVERY = 100;

interface Port {
  postMessage(message: FromWorker): void;
}

/** One subscription on the socket and everybody who looks at it. */
class Shared {
  readonly rows: RowSet | null;
  /** The newest message of a topic that tells the whole each time. */
  latest: ServerMessage | null = null;
  readonly viewers = new Set<Viewer>();
  readonly close: () => void;
  #ending: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly key: string,
    readonly subscription: Subscription,
  ) {
    const tables = subscription.topic === "rows" || subscription.topic === "events";
    this.rows = tables ? new RowSet() : null;
    this.close = socket.subscribe(subscription, (message) => this.take(message));
  }

  take(message: ServerMessage): void {
    if (!this.rows) {
      if (message.type === "data") this.latest = message;
      for (const viewer of this.viewers) viewer.tell({ type: "message", view: viewer.view, message });
      return;
    }
    const delta = this.rows.take(message);
    for (const viewer of this.viewers) {
      viewer.ordered?.take(delta);
      viewer.soon();
    }
  }

  add(viewer: Viewer): void {
    clearTimeout(this.#ending);
    this.#ending = undefined;
    this.viewers.add(viewer);
    if (this.latest) viewer.tell({ type: "message", view: viewer.view, message: this.latest });
  }

  drop(viewer: Viewer): void {
    this.viewers.delete(viewer);
    if (this.viewers.size) return;
    // What is kept here is found again by the page that comes next; a log is told once, and is not.
    this.#ending = setTimeout(() => this.end(), this.rows || this.latest || this.subscription.topic === "clusters" ? LINGER : 0);
  }

  end(): void {
    this.close();
    shared.delete(this.key);
  }
}

/** One page's look at a subscription. */
class Viewer {
  readonly ordered: OrderedView | null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #last = 0;
  #told = 0;

  constructor(
    readonly port: Port,
    readonly view: number,
    readonly of: Shared,
    want: View | null,
  ) {
    this.ordered = of.rows && want ? new OrderedView(of.rows, want) : null;
    of.add(this);
    if (this.ordered) this.now();
  }

  tell(message: FromWorker): void {
    this.port.postMessage(message);
  }

  want(want: View): void {
    this.ordered?.change(want);
    this.now();
  }

  now(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#last = performance.now();
    const update = this.ordered?.news();
    if (!update) return;
    this.#told = update.matched;
    this.tell({ type: "rows", view: this.view, update });
  }

  soon(): void {
    // Whoever sees nothing yet is not kept waiting.
    if (!this.#told && this.ordered?.rows.length) return this.now();
    if (this.#timer !== undefined) return;
    const wait = Math.max(0, this.#last + EVERY - performance.now());
    this.#timer = setTimeout(() => this.now(), wait);
  }

  close(): void {
    clearTimeout(this.#timer);
    this.of.drop(this);
  }
}

const ports = new Set<Port>();
const shared = new Map<string, Shared>();
/** A log is each page's own: it is told once, and not kept here. */
let privates = 0;

const socket = new Socket({
  link: (link) => ports.forEach((port) => port.postMessage({ type: "link", link })),
  loggedOut: () => ports.forEach((port) => port.postMessage({ type: "logged-out" })),
});

function find(subscription: Subscription): Shared {
  const own = subscription.topic === "log" || subscription.topic === "violations";
  const key = JSON.stringify(subscription) + (own ? ` ${privates++}` : "");
  let found = shared.get(key);
  if (found?.rows?.problem) {
    // It was refused: whoever asks again wants it asked again.
    found.end();
    found = undefined;
  }
  if (!found) {
    found = new Shared(key, subscription);
    shared.set(key, found);
  }
  return found;
}

function connect(port: Port & { onmessage: ((event: MessageEvent<ToWorker>) => void) | null }): void {
  const viewers = new Map<number, Viewer>();
  ports.add(port);
  port.postMessage({ type: "link", link: socket.state });
  port.onmessage = ({ data }) => {
    switch (data.op) {
      case "open":
        viewers.get(data.view)?.close();
        viewers.set(data.view, new Viewer(port, data.view, find(data.subscription), data.want));
        break;
      case "want":
        viewers.get(data.view)?.want(data.want);
        break;
      case "close":
        viewers.get(data.view)?.close();
        viewers.delete(data.view);
        break;
      case "all":
        port.postMessage({ type: "answer", ask: data.ask, value: viewers.get(data.view)?.ordered?.rows ?? [] });
        break;
      case "values":
        port.postMessage({ type: "answer", ask: data.ask, value: viewers.get(data.view)?.ordered?.values(data.column) ?? [] });
        break;
      case "logged-in":
        socket.retry();
        break;
      case "bye":
        viewers.forEach((viewer) => viewer.close());
        viewers.clear();
        ports.delete(port);
        break;
    }
  };
}

if ("onconnect" in globalThis || "SharedWorkerGlobalScope" in globalThis) {
  (globalThis as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
    const port = event.ports[0];
    if (port) connect(port);
  };
} else {
  connect(globalThis as unknown as Port & { onmessage: ((event: MessageEvent<ToWorker>) => void) | null });
}
