// What a browser did, measured from outside of the page where that can be: bytes and requests on the wire,
// memory of its renderers; and from within: frames, and when rows were there.
import { readFileSync } from "node:fs";
import net from "node:net";

/** Passes connections on, and counts their bytes and requests. */
export class Counter {
  requests = [];
  bytes = 0;
  #sockets = new Set();

  async start(target) {
    this.server = net.createServer((client) => {
      const upstream = net.connect(target, "127.0.0.1");
      for (const [one, other] of [[client, upstream], [upstream, client]]) {
        this.#sockets.add(one);
        one.on("error", () => {}).on("close", () => { this.#sockets.delete(one); other.destroy(); });
      }
      client.on("data", (piece) => {
        this.bytes += piece.length;
        // A frame of a socket is masked: no request is found in it by accident.
        for (const [, method, path] of piece.toString("latin1").matchAll(/(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP\/1\.1\r\n/g)) this.requests.push(`${method} ${path}`);
        if (!upstream.write(piece)) client.pause();
      });
      upstream.on("drain", () => client.resume());
      upstream.on("data", (piece) => {
        this.bytes += piece.length;
        if (!client.write(piece)) upstream.pause();
      });
      client.on("drain", () => upstream.resume());
    });
    await new Promise((listening) => this.server.listen(0, "127.0.0.1", listening));
    this.port = this.server.address().port;
    this.origin = `http://127.0.0.1:${this.port}`;
    return this;
  }

  /** What was counted since the last time, without the files of the page itself. */
  take() {
    const taken = { requests: this.requests.filter((one) => !/ \/(assets\/|favicon|poll|watch)/.test(one)).length, bytes: this.bytes };
    [this.requests, this.bytes] = [[], 0];
    return taken;
  }

  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop() {
    this.cut();
    this.server.close();
  }
}

/** The private memory of the renderers of a browser's tabs and workers, in megabytes; not of its address bar. */
export async function rendererMemory(browser) {
  const session = await browser.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  let kilobytes = 0;
  for (const { type, id } of processInfo) {
    if (type !== "renderer") continue;
    try {
      if (readFileSync(`/proc/${id}/cmdline`, "utf8").includes("--top-chrome-webui")) continue;
      for (const [, size] of readFileSync(`/proc/${id}/smaps_rollup`, "utf8").matchAll(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm)) kilobytes += Number(size);
    } catch {
      // It has just ended.
    }
  }
  return kilobytes / 1000;
}

/** Notes when the first row, and when all `wanted` rows were there, from the beginning of the page's load. */
export const WATCH_ROWS = `(wanted) => {
  globalThis.seen = {};
  const look = () => {
    const seen = globalThis.seen;
    const total = Number(document.querySelector("[data-total]")?.dataset.total ?? 0);
    if (!seen.first && document.querySelector(".tr a[href*='/pods/'], tbody .tr")) seen.first = performance.now();
    if (!seen.all && total === wanted) seen.all = performance.now();
    if (!seen.all) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}`;

/** Scrolls what is in the table for some seconds; the gaps between frames. */
export async function scroll(page, seconds) {
  const gaps = await page.evaluate(async (seconds) => {
    const table = document.querySelector(".table");
    const gaps = [];
    let last = performance.now();
    let way = 40;
    await new Promise((done) => {
      const end = last + seconds * 1000;
      const frame = (now) => {
        gaps.push(now - last);
        last = now;
        if (table.scrollTop + table.clientHeight >= table.scrollHeight - 50) way = -40;
        else if (table.scrollTop < 50) way = 40;
        table.scrollTop += way;
        if (now < end) requestAnimationFrame(frame);
        else done();
      };
      requestAnimationFrame(frame);
    });
    return gaps;
  }, seconds);
  gaps.sort((a, b) => a - b);
  const part = (share) => gaps[Math.min(gaps.length - 1, Math.floor(gaps.length * share))];
  return { frames: gaps.length, p50: part(0.5), p95: part(0.95), longest: gaps.at(-1) };
}

/** Changes pods at a steady rate, until it is stopped. */
export class Changes {
  made = 0;
  #stop = false;

  start(kube, namespaces, pods, rate) {
    this.begun = performance.now();
    // Another word each time: a change to what is there already is none.
    const round = Date.now().toString(36);
    let next = 0;
    const work = async () => {
      while (!this.#stop) {
        const index = next++;
        const wait = this.begun + (index * 1000) / rate - performance.now();
        if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
        const at = (index * 7919) % pods;
        await kube.status(namespaces[at % namespaces.length], `web-${at}`, { phase: index % 2 ? "Running" : "Failed", reason: `Round${round}${index}` }).catch(() => {});
        this.made++;
      }
    };
    this.working = Promise.all(Array.from({ length: 12 }, work));
    return this;
  }

  get rate() {
    return (this.made * 1000) / (performance.now() - this.begun);
  }

  async stop() {
    this.#stop = true;
    await this.working;
  }
}
