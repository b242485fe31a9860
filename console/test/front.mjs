// Serves a built console before a running Fairlead: with CONSOLE_DIST=dist a change of the page is tested
// without building the program anew. The content security policy is the program's own, from its source.
import { existsSync, readFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { extname, join } from "node:path";

const TYPES = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8" };

const SOURCE = readFileSync(new URL("../../crates/edge/src/api/console.rs", import.meta.url), "utf8");
const POLICY = /"(default-src 'none'; script-src[^"]*)"/.exec(SOURCE)[1].replace(/\\\n\s*/g, "");

export class Front {
  #port = 0;

  constructor(dist) {
    this.dist = dist;
  }

  behind(port) {
    this.#port = port;
  }

  async start() {
    this.server = http.createServer((request, response) => void this.#answer(request, response));
    this.server.on("upgrade", (request, socket) => {
      const upstream = net.connect(this.#port, "127.0.0.1", () => {
        const lines = [];
        for (let at = 0; at < request.rawHeaders.length; at += 2) lines.push(`${request.rawHeaders[at]}: ${request.rawHeaders[at + 1]}`);
        upstream.write(`${request.method} ${request.url} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
        upstream.pipe(socket).pipe(upstream);
      });
      for (const [one, other] of [[socket, upstream], [upstream, socket]]) one.on("error", () => other.destroy()).on("close", () => other.destroy());
    });
    await new Promise((listening) => this.server.listen(0, "127.0.0.1", listening));
    return this;
  }

  get port() {
    return this.server.address().port;
  }

  async #answer(request, response) {
    const path = new URL(request.url, "http://front").pathname;
    if (/^\/(api|auth|login)(\/|$)/.test(path)) return this.#pass(request, response);
    const own = path.startsWith("/assets/") || (path !== "/" && existsSync(join(this.dist, path)));
    const file = join(this.dist, own ? path : "index.html");
    if (!existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream", "content-security-policy": POLICY });
    response.end(readFileSync(file));
  }

  #pass(request, response) {
    const upstream = http.request({ port: this.#port, host: "127.0.0.1", method: request.method, path: request.url, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.rawHeaders);
      answer.pipe(response);
    });
    upstream.on("error", () => response.destroy());
    request.pipe(upstream);
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
