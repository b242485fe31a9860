// A real `fairlead up`, the clusters that it is given, and a real browser that looks at it.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { Front } from "./front.mjs";

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export class Fairlead {
  /** `settings` are further variables of its environment. */
  constructor(kubeconfig, settings = {}) {
    this.settings = settings;
    this.dir = mkdtempSync(join(tmpdir(), "fairlead-console-"));
    this.kubeconfig = join(this.dir, "kubeconfig");
    writeFileSync(this.kubeconfig, JSON.stringify(kubeconfig));
  }

  async start(port = 0) {
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("FAIRLEAD_")));
    const args = ["up", "--admin-listen", "127.0.0.1:0", "--api-listen", `127.0.0.1:${port}`, "--fleet-kubeconfig", this.kubeconfig, "--data", join(this.dir, "data")];
    this.process = spawn(process.env.FAIRLEAD_BIN, args, {
      env: { ...environment, FAIRLEAD_CONFIG: "/dev/null", FAIRLEAD_AGENTS_LISTEN: "127.0.0.1:0", FAIRLEAD_GUARD_OBSERVE: "off", ...this.settings },
      stdio: ["ignore", "pipe", "ignore"],
    });
    const places = {};
    await new Promise((started, failed) => {
      let text = "";
      this.process.on("exit", (code) => failed(new Error(`fairlead up ended with ${code}: ${text}`)));
      this.process.stdout.setEncoding("utf8").on("data", (piece) => {
        text += piece;
        for (const [, name, place] of text.matchAll(/^\s*(api|admin|agents|token|data)\s+(\S+)(?: \(.*\))?\s*$/gm)) places[name] = place;
        if (places.data) started();
      });
    });
    this.process.removeAllListeners("exit");
    this.origin = places.api.replace(/\/$/, "");
    this.port = Number(new URL(this.origin).port);
    this.api = this.origin;
    if (process.env.CONSOLE_DIST) {
      this.front ??= await new Front(process.env.CONSOLE_DIST).start();
      this.front.behind(this.port);
      this.origin = `http://127.0.0.1:${this.front.port}`;
    }
    this.agents = places.agents;
    this.token = readFileSync(places.token, "utf8").trim();
    // Where stdout is no terminal, none is printed.
    this.link = this.origin + (await this.ask("POST", "/login-links")).path;
    return this;
  }

  async kill() {
    const gone = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await gone;
  }

  async stop() {
    await this.kill();
    this.front?.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** Asks the API as the machine's owner. */
  async ask(method, path, body) {
    const response = await fetch(`${this.api}/api/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  inflight(kind) {
    return this.ask("GET", `/inflight?kind=${kind}`).then(({ operations }) => operations);
  }
}

/** Waits until `holds` returns something true, and returns it. */
export async function until(what, holds, within = 60_000) {
  const end = Date.now() + within;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${within} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A port that passes on to another, until it is told not to. */
export class Proxy {
  dark = false;
  #sockets = new Set();

  async start(target) {
    this.server = net.createServer((client) => {
      const upstream = net.connect(Number(target.port), target.hostname);
      for (const socket of [client, upstream]) {
        this.#sockets.add(socket);
        socket.on("error", () => {}).on("close", () => this.#sockets.delete(socket));
      }
      client.on("data", (bytes) => this.dark || upstream.write(bytes)).on("close", () => upstream.destroy());
      upstream.on("data", (bytes) => this.dark || client.write(bytes)).on("close", () => client.destroy());
    });
    await new Promise((listening) => this.server.listen(0, "127.0.0.1", listening));
    return this;
  }

  get port() {
    return this.server.address().port;
  }

  /** Cuts every connection. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop() {
    this.cut();
    this.server.close();
  }
}

/** A browser, and everything that its pages complained of. */
export class Browser {
  complaints = [];
  requests = [];

  async start() {
    this.browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
    return this;
  }

  /** A session of its own: cookies and storage are nobody else's. */
  async session(fairlead, options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1360, height: 820 }, ...options });
    context.setDefaultTimeout(45_000);
    context.on("page", (page) => this.#watch(page, fairlead.origin));
    return context;
  }

  #watch(page, origin) {
    page.on("console", (message) => {
      // The browser says so of every refusal; the pages show those as sentences.
      if (message.type() === "error" && !/Failed to load resource|WebSocket connection to/.test(message.text())) {
        this.complaints.push(`${page.url()}: ${message.text()}`);
      }
    });
    page.on("pageerror", (error) => this.complaints.push(`${page.url()}: ${error.stack}`));
    page.on("request", (request) => {
      this.requests.push(request.url());
      const url = new URL(request.url());
      if (url.protocol.startsWith("http") && url.origin !== origin) this.complaints.push(`a request to ${request.url()}`);
    });
  }

  stop() {
    return this.browser.close();
  }
}
