/**
 * The one socket: subscriptions over it, reconnected with what each has heard so far.
 *
 * It is open as long as somebody subscribes. When it is lost, it is tried again after a growing while;
 * each subscription then goes on from its `resume`.
 */
import { BASE } from "../api/client";
import type { Link, ServerMessage, Subscription } from "./protocol";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
/** How long it stays open without subscriptions, in milliseconds: pages are left for other pages. */
const CLOSE_AFTER = 5_000;

interface Open {
  subscription: Subscription;
  take: (message: ServerMessage) => void;
  /** Where each cluster's part goes on, or all of it. */
  resume: Record<string, string> | string | null;
  ended: boolean;
}

export interface Listener {
  link: (link: Link) => void;
  loggedOut: () => void;
}

function decompressed(gzip: ArrayBuffer): Promise<string> {
  return new Response(new Blob([gzip]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

export class Socket {
  state: Link = { state: "connecting", since: Date.now() };
  readonly #listener: Listener;
  readonly #open = new Map<number, Open>();
  #socket: WebSocket | null = null;
  #wait = FIRST_WAIT;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closing: ReturnType<typeof setTimeout> | undefined;
  #next = 1;

  constructor(listener: Listener) {
    this.#listener = listener;
  }

  subscribe(subscription: Subscription, take: (message: ServerMessage) => void): () => void {
    const id = this.#next++;
    const open: Open = { subscription, take, resume: null, ended: false };
    this.#open.set(id, open);
    clearTimeout(this.#closing);
    if (this.#socket?.readyState === WebSocket.OPEN) this.#send(id, open);
    else if (!this.#socket && this.#timer === undefined) this.#connect();
    return () => {
      this.#open.delete(id);
      if (!open.ended && this.#socket?.readyState === WebSocket.OPEN) {
        this.#socket.send(JSON.stringify({ op: "unsubscribe", id }));
      }
      if (!this.#open.size) this.#closing = setTimeout(() => this.#close(), CLOSE_AFTER);
    };
  }

  /** Tries now what would be tried later. */
  retry(): void {
    if (this.#timer === undefined) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#wait = FIRST_WAIT;
    this.#connect();
  }

  #send(id: number, { subscription, resume }: Open): void {
    this.#socket?.send(JSON.stringify({ op: "subscribe", id, ...subscription, ...(resume ? { resume } : {}) }));
  }

  #say(link: Link): void {
    this.state = link;
    this.#listener.link(link);
  }

  #connect(): void {
    if (!this.#open.size) return;
    const to = new URL(`${BASE}/socket${"DecompressionStream" in globalThis ? "?compress=gzip" : ""}`, location.href);
    to.protocol = to.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(to);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    socket.onopen = () => {
      this.#wait = FIRST_WAIT;
      this.#say({ state: "open", since: Date.now() });
      for (const [id, open] of this.#open) {
        if (open.ended) continue;
        // A log has no place to go on from: it is told from its beginning.
        if (open.subscription.topic === "log" && !open.resume) open.take({ id, type: "reset" });
        this.#send(id, open);
      }
    };
    // Frames are taken in the order in which they came, though some are decompressed first.
    let before: Promise<void> | null = null;
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (typeof data === "string" && !before) return take(data);
      const taken: Promise<void> = Promise.all([typeof data === "string" ? data : decompressed(data), before]).then(
        ([text]) => {
          if (before === taken) before = null;
          if (this.#socket === socket) take(text);
        },
        // It is told again on the next one.
        () => socket.close(),
      );
      before = taken;
    };
    const take = (text: string) => {
      const message = JSON.parse(text) as ServerMessage;
      const open = this.#open.get(message.id);
      if (!open) return;
      if ("resume" in message && message.resume) {
        if (message.cluster === undefined) open.resume = message.resume;
        else open.resume = { ...(typeof open.resume === "object" ? open.resume : {}), [message.cluster]: message.resume };
      }
      if (message.type === "end" && message.cluster === undefined) open.ended = true;
      open.take(message);
    };
    socket.onclose = () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      if (this.#open.size) void this.#lost();
    };
  }

  async #lost(): Promise<void> {
    const wait = this.#wait * (0.75 + Math.random() / 2);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#connect();
    }, wait);
    const since = this.state.state === "lost" ? this.state.since : Date.now();
    this.#say({ state: "lost", since, nextTryAt: Date.now() + wait });
    // A refused upgrade has no status that a page may see; a plain request has.
    const me = await fetch(`${BASE}/me`, { credentials: "same-origin" }).catch(() => null);
    if (me?.status === 401) this.#listener.loggedOut();
  }

  #close(): void {
    if (this.#open.size) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.state = { state: "connecting", since: Date.now() };
  }
}
