// The console beside two other ways to show the same pods, in one run: one that polls and one that keeps a
// watch in the page (models.mjs says what they are).
//
//   FAIRLEAD_BIN=… KUBE=kubeconfig CONSOLE_PODS=10000 node bench/bench.mjs
//
// CONSOLE_RATE     changes of pods a second (200)
// CONSOLE_SECONDS  how long each way is watched (30)
// CONSOLE_MINUTES  how long the console's memory and an idle shell are watched (0)
// CONSOLE_OUT      a file for the results, as JSON
//
// Exit 1: a limit does not hold here.
import { writeFileSync } from "node:fs";
import { Browser, Fairlead, Proxy, until } from "../test/fairlead.mjs";
import { Kube } from "../test/kube.mjs";
import { Kubelet } from "../test/kubelet.mjs";
import { Changes, Counter, rendererMemory, scroll, WATCH_ROWS } from "./measure.mjs";
import { Models } from "./models.mjs";

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const [PODS, RATE, SECONDS, MINUTES] = [number("CONSOLE_PODS", 10_000), number("CONSOLE_RATE", 200), number("CONSOLE_SECONDS", 30), number("CONSOLE_MINUTES", 0)];
const NAMESPACES = ["shop", "pay", "play"];
const PASSWORD = "a few words will do";
const say = (text) => process.stderr.write(`${text}\n`);

const kube = new Kube(process.env.KUBE);
const [models, silent, kubelet] = [new Models(), new Proxy(), new Kubelet()];
const limits = [];
const must = (what, value, limit, unit) => limits.push({ what, value, limit, unit, ok: value <= limit });

function kubeconfig() {
  const { cluster } = kube.config.clusters[0];
  const { user } = kube.config.users.find(({ name }) => name === "certificate");
  const clusters = [{ name: "eu", cluster }, { name: "dark", cluster: { ...cluster, server: `https://127.0.0.1:${silent.port}` } }];
  return { apiVersion: "v1", kind: "Config", clusters, users: [{ name: "admin", user }], contexts: clusters.map(({ name }) => ({ name, context: { cluster: name, user: "admin" } })) };
}

/** One browser of its own for each way, so that its memory is its own. */
async function inBrowser(counter, run) {
  const browser = await new Browser().start();
  try {
    const context = await browser.session({ origin: counter.origin });
    const blank = await context.newPage();
    await blank.goto("about:blank");
    const least = await rendererMemory(browser.browser);
    await blank.close();
    return await run(context, async (page) => {
      const session = await context.newCDPSession(page);
      await session.send("HeapProfiler.enable");
      await session.send("HeapProfiler.collectGarbage");
      await session.detach();
      return (await rendererMemory(browser.browser)) - least;
    });
  } finally {
    await browser.stop();
  }
}

/** How long a change of the first row takes to be seen. */
async function staleness(page) {
  const times = [];
  for (let round = 0; round < 5; round++) {
    const name = await page.locator(".tr").first().evaluate((row) => (row.querySelector("a")?.textContent ?? row.cells[0].textContent).trim());
    const namespace = NAMESPACES[Number(name.split("-").at(-1)) % NAMESPACES.length];
    const word = `Seen${round}x${Date.now()}`;
    const begun = performance.now();
    await kube.status(namespace, name, { phase: "Failed", reason: word });
    await page.locator(".tr", { hasText: word }).first().waitFor({ timeout: 20_000 });
    times.push(performance.now() - begun);
  }
  return times.sort((a, b) => a - b)[2];
}

/** Opens a page with `PODS` rows, scrolls it under changes, and tells what it cost. */
async function watch(counter, context, memory, path) {
  const page = await context.newPage();
  await page.addInitScript(`(${WATCH_ROWS})(${total})`);
  // A browser that was just started loads pages of its own for some seconds.
  await page.goto("about:blank");
  await page.waitForTimeout(5_000);
  counter.take();
  await page.goto(counter.origin + path);
  const seen = await until(`all rows of ${path}`, () => page.evaluate(() => (globalThis.seen.all ? globalThis.seen : null)), 120_000);
  const opened = counter.take();
  const changes = new Changes().start(kube, NAMESPACES, PODS, RATE);
  const frames = await scroll(page, 10);
  await page.waitForTimeout(Math.max(0, SECONDS - 10) * 1000);
  const rate = changes.rate;
  const running = counter.take();
  await changes.stop();
  await page.locator(".table").evaluate((table) => { table.scrollTop = 0; });
  await page.waitForTimeout(500);
  const seenAfter = await staleness(page);
  const rows = await page.locator(".rows .tr, tbody .tr").count();
  return { page, result: { first: seen.first, all: seen.all, opened, running, rate, frames, memory: await memory(page), seenAfter, rows } };
}

let total = 0;

async function ours(fairlead) {
  const counter = await new Counter().start(fairlead.front?.port ?? fairlead.port);
  try {
    return await inBrowser(counter, async (context, memory) => {
      const login = await context.newPage();
      const link = await fairlead.ask("POST", "/login-links");
      await login.goto(counter.origin + link.path);
      await login.locator(".frame").waitFor();
      await login.goto(`${counter.origin}/c/eu/namespaces`);
      await login.locator(".tr a").first().waitFor();
      await login.close();
      const { page, result } = await watch(counter, context, memory, "/c/eu/pods?sort=Name");
      must(`${total} pods: the first row`, result.first, 300, "ms");
      must(`${total} pods: all rows`, result.all, 2000, "ms");
      must("row elements", result.rows, 120, "");
      must(`p95 of frames, scrolled under ${RATE} changes/s`, result.frames.p95, 17, "ms");
      must("memory of the tab and its worker", result.memory, 80, "MB");
      await more(counter, context, page, memory);
      return result;
    });
  } finally {
    counter.stop();
  }
}

/** What has a limit of its own, and no rival here. */
async function more(counter, context, page, memory) {
  await page.goto(`${counter.origin}/`);
  await until("the dead one is told", () => page.locator(".tr", { hasText: "dark" }).getByText("unreachable").count(), 60_000);
  const dead = await page.evaluate(async () => {
    const begun = performance.now();
    [...document.querySelectorAll(".tr a")].find((link) => link.textContent === "dark").click();
    while (!/handshake|unreachable/.test(document.querySelector(".cluster .notice")?.textContent ?? "") && performance.now() - begun < 5000) await new Promise(requestAnimationFrame);
    return performance.now() - begun;
  });
  must("the page of a dead cluster says why", dead, 200, "ms");

  const at = new Date().toISOString().replace("Z", "000000Z");
  kubelet.logs.set("zz-talker", Array.from({ length: 100_000 }, (_, index) => `${at} line ${index} of a log that nobody reads`));
  await page.goto(`${counter.origin}/c/eu/pods/shop/zz-talker?tab=logs&tail=all`);
  await until("every line", async () => (await page.locator("[data-lines]").getAttribute("data-lines")) === "100000", 60_000);
  await page.locator("#log-find").fill("line 999");
  await page.waitForTimeout(500);
  const searched = await page.evaluate(async () => {
    const field = document.getElementById("log-find");
    const begun = performance.now();
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, "line 4242");
    field.dispatchEvent(new InputEvent("input", { bubbles: true }));
    while (document.querySelector("[data-found]")?.dataset.found !== "11" && performance.now() - begun < 5000) await new Promise(requestAnimationFrame);
    return performance.now() - begun;
  });
  must("a search of 100,000 lines of a log", searched, 200, "ms");

  if (MINUTES > 0) {
    const shell = await context.newPage();
    await shell.goto(`${counter.origin}/c/eu/pods/shop/zz-talker?tab=shell`);
    await shell.locator(".terminal .xterm-rows").getByText("$").first().waitFor();
    await page.goto(`${counter.origin}/c/eu/pods?sort=Name`);
    await page.bringToFront();
    const changes = new Changes().start(kube, NAMESPACES, PODS, RATE);
    const samples = [];
    for (let minute = 0; minute <= MINUTES; minute++) {
      await page.waitForTimeout(minute ? 60_000 : 20_000);
      samples.push(await memory(page));
      say(`after ${minute} minutes: ${samples.at(-1).toFixed(1)} MB`);
    }
    await changes.stop();
    must(`memory after ${MINUTES} minutes, above that after the first seconds`, samples.at(-1) - samples[0], Math.max(8, samples[0] * 0.15), "MB");
    await shell.bringToFront();
    await shell.locator(".xterm-helper-textarea").focus();
    await shell.keyboard.type("still here");
    await shell.locator(".terminal .xterm-rows").getByText("still here").first().waitFor({ timeout: 10_000 });
    await shell.close();
  }
}

/** A user of two namespaces of three: all rows of those, exactly. */
async function limited(fairlead) {
  const counter = await new Counter().start(fairlead.front?.port ?? fairlead.port);
  const wanted = (PODS - Math.floor((PODS + 2 - NAMESPACES.indexOf("play")) / 3)) + 1;
  try {
    return await inBrowser(counter, async (context) => {
      const page = await context.newPage();
      await page.goto(`${counter.origin}/c/eu/namespaces`);
      await page.getByLabel("User").fill("sam");
      await page.getByLabel("Password").fill(PASSWORD);
      await page.keyboard.press("Enter");
      await page.locator(".frame").waitFor();
      await page.addInitScript(`(${WATCH_ROWS})(${wanted})`);
      await page.goto(`${counter.origin}/c/eu/pods?sort=Name`);
      const seen = await until("all rows that one may see", () => page.evaluate(() => (globalThis.seen.all ? globalThis.seen : null)), 120_000);
      must(`a user of two namespaces, ${wanted} pods: the first row`, seen.first, 300, "ms");
      must(`a user of two namespaces, ${wanted} pods: all rows`, seen.all, 2000, "ms");
      return seen;
    });
  } finally {
    counter.stop();
  }
}

async function model(path) {
  const counter = await new Counter().start(models.port);
  try {
    return await inBrowser(counter, async (context, memory) => (await watch(counter, context, memory, path)).result);
  } finally {
    counter.stop();
  }
}

await Promise.all([models.start(kube), silent.start(kube.server), kubelet.start(kube)]);
silent.dark = true;
for (const name of NAMESPACES) await kube.namespace(name).catch(() => {});
await kubelet.register(kube, "node-1").catch(() => {});
await kube.pod("shop", "zz-talker", { spec: { nodeName: "node-1" } }).catch(() => {});
await kube.status("shop", "zz-talker", { phase: "Running", containerStatuses: [{ name: "web", ready: true, restartCount: 0, image: "x", imageID: "x", state: { running: { startedAt: new Date().toISOString() } } }] });
say(`${PODS} pods are made`);
await kube.manyPods(PODS, NAMESPACES);
total = PODS + 1;
await until("the API server has them all", async () => (await kube.request("GET", "/api/v1/pods?resourceVersion=0")).items.length >= total, 60_000);
const fairlead = await new Fairlead(kubeconfig()).start();
let failed = false;
try {
  await until("eu is ready", async () => (await fairlead.ask("GET", "/clusters")).clusters.some(({ name, state }) => name === "eu" && state === "ready"), 60_000);
  await fairlead.ask("POST", "/roles", { name: "two-namespaces", allow: [{ clusters: ["*"], namespaces: ["shop", "pay"], resources: ["*"], verbs: ["get", "list", "watch", "log"] }] });
  await fairlead.ask("POST", "/users", { name: "sam", password: PASSWORD, roles: ["two-namespaces"] });
  say("the console");
  const ways = { console: await ours(fairlead) };
  say("a user of two namespaces");
  await limited(fairlead);
  say("a model that polls");
  ways.poll = await model("/poll");
  say("a model that keeps a watch in the page");
  ways.watch = await model("/watch");
  report(ways);
  failed = limits.some(({ ok }) => !ok);
} finally {
  await fairlead.stop();
  models.stop();
  kubelet.stop();
  silent.stop();
}
process.exit(failed ? 1 : 0);

function report(ways) {
  const lines = [
    ["first row", "ms", ({ first }) => first],
    ["all rows", "ms", ({ all }) => all],
    ["bytes to open it", "kB", ({ opened }) => opened.bytes / 1000],
    [`requests in ${SECONDS} s`, "", ({ running }) => running.requests],
    [`bytes in ${SECONDS} s`, "kB", ({ running }) => running.bytes / 1000],
    ["a change is seen after", "ms", ({ seenAfter }) => seenAfter],
    ["memory of the tab and its workers", "MB", ({ memory }) => memory],
    ["p95 of frames while it is scrolled", "ms", ({ frames }) => frames.p95],
    ["longest frame", "ms", ({ frames }) => frames.longest],
  ];
  const rows = lines.map(([what, unit, of]) => ({ what, unit, console: of(ways.console), poll: of(ways.poll), watch: of(ways.watch) }));
  const round = (value) => (value >= 100 ? Math.round(value) : Number(value.toFixed(1)));
  const ratio = (value, ours) => (ours > 0 ? `${round(value / ours)}×` : "–");
  console.log(`\n${total} pods, ${ways.console.rate.toFixed(0)}, ${ways.poll.rate.toFixed(0)} and ${ways.watch.rate.toFixed(0)} changes a second\n`);
  console.log("| what | console | polling every 5 s | a watch in the page |\n|---|---|---|---|");
  for (const { what, unit, console: own, poll, watch } of rows) console.log(`| ${what} | ${round(own)} ${unit} | ${round(poll)} ${unit}, ${ratio(poll, own)} | ${round(watch)} ${unit}, ${ratio(watch, own)} |`);
  console.log("\n| limit | here | holds |\n|---|---|---|");
  for (const { what, value, limit, unit, ok } of limits) console.log(`| ${what}: at most ${round(limit)} ${unit} | ${round(value)} ${unit} | ${ok ? "yes" : "**NO**"} |`);
  if (process.env.CONSOLE_OUT) writeFileSync(process.env.CONSOLE_OUT, JSON.stringify({ pods: total, rows, limits }));
}
