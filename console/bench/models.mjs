// Two other ways to show the same pods, as small as they can be, and kinder than what they stand for:
//
// - `poll`, Kite's way: the whole list over REST every five seconds, compressed; a page of rows is drawn.
// - `watch`, Headlamp's way: one list and one watch for the page, every object kept and sorted in the page;
//   a page of rows is drawn, at most ten times a second.
//
// Both are served by a process beside the API server, which passes its answers on and reads its watch cache.
import http from "node:http";
import https from "node:https";
import { createGzip } from "node:zlib";

/** Rows that either draws: the most that Kite offers. */
const DRAWN = 100;

const HTML = (script) => `<!doctype html><meta charset="utf-8"><title>model</title>
<style>body{margin:0;font:13px sans-serif}.table{height:780px;overflow:auto}td{height:29px;padding:0 10px;white-space:nowrap;border-bottom:1px solid #ddd}</style>
<div class="table"><table><tbody></tbody></table></div><script>${script}</script>`;

/** What both share: the rows of a list of objects, drawn by exchanging the text of cells that changed. */
const DRAW = `
const body = document.querySelector("tbody");
const cells = (pod) => [pod.metadata.name, pod.metadata.namespace, (pod.status.containerStatuses ?? []).filter((one) => one.ready).length + "/" + pod.spec.containers.length, pod.status.reason ?? pod.status.phase, (pod.status.containerStatuses ?? []).reduce((sum, one) => sum + one.restartCount, 0), Math.round((Date.now() - Date.parse(pod.metadata.creationTimestamp)) / 60000) + "m", pod.status.podIP ?? "", pod.spec.nodeName ?? ""];
function draw(pods) {
  const shown = pods.slice(0, ${DRAWN});
  while (body.rows.length > shown.length) body.deleteRow(-1);
  shown.forEach((pod, index) => {
    const row = body.rows[index] ?? body.insertRow();
    row.className = "tr";
    cells(pod).forEach((text, at) => {
      const cell = row.cells[at] ?? row.insertCell();
      if (cell.textContent !== String(text)) cell.textContent = text;
    });
  });
  document.body.dataset.total = pods.length;
}
const byName = (a, b) => (a.metadata.name < b.metadata.name ? -1 : a.metadata.name > b.metadata.name ? 1 : 0);
`;

const PAGES = {
  "/poll": HTML(`${DRAW}
async function ask() {
  const { items } = await (await fetch("/list")).json();
  globalThis.kept = items.sort(byName);
  draw(kept);
  setTimeout(ask, 5000);
}
ask();`),
  "/watch": HTML(`${DRAW}
(async () => {
  const list = await (await fetch("/list")).json();
  const pods = new Map(list.items.map((pod) => [pod.metadata.uid, pod]));
  const show = () => draw([...pods.values()].sort(byName));
  globalThis.kept = pods;
  show();
  let due = null;
  const reader = (await fetch("/changes?from=" + list.metadata.resourceVersion)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\\n");
    rest = lines.pop();
    for (const line of lines) {
      const { type, object } = JSON.parse(line);
      if (type === "DELETED") pods.delete(object.metadata.uid);
      else if (object.kind === "Pod") pods.set(object.metadata.uid, object);
    }
    due ??= setTimeout(() => { due = null; show(); }, 100);
  }
})();`),
};

export class Models {
  async start(kube) {
    this.kube = kube;
    this.server = http.createServer((request, response) => this.#answer(request, response));
    await new Promise((listening) => this.server.listen(0, "127.0.0.1", listening));
    return this;
  }

  get port() {
    return this.server.address().port;
  }

  #answer(request, response) {
    const url = new URL(request.url, "http://models");
    const page = PAGES[url.pathname];
    if (page) return response.writeHead(200, { "content-type": "text/html" }).end(page);
    if (url.pathname === "/list") return this.#pass("/api/v1/pods?resourceVersion=0", response, createGzip({ level: 5 }));
    if (url.pathname === "/changes") return this.#pass(`/api/v1/pods?watch=1&resourceVersion=${url.searchParams.get("from")}`, response, null);
    response.writeHead(404).end();
  }

  #pass(path, response, gzip) {
    const { server, agent } = this.kube;
    const request = https.request({ host: server.hostname, port: server.port, path, agent }, (answer) => {
      response.writeHead(answer.statusCode, { "content-type": "application/json", ...(gzip ? { "content-encoding": "gzip" } : {}) });
      if (gzip) answer.pipe(gzip).pipe(response);
      else answer.pipe(response);
    });
    request.on("error", () => response.destroy()).end();
    response.on("close", () => request.destroy());
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
