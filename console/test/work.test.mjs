// What people work with, day by day: favourites, containers without YAML, copies, volumes, usage, shells on
// nodes, images, policies, receivers. In a real Chromium, against a real Fairlead and a real API server.
//
// FAIRLEAD_BIN is the program, KUBE a kubeconfig; `cargo nextest run -p fairlead --test console` starts both.
// There is no metrics server and no Prometheus here: what they would say is made up by stand-ins, which the
// real API server serves (objects of two definitions) and passes on to (a Service's endpoint).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { axe, axeInBoth, settled } from "./axe.mjs";
import { Browser, Fairlead, until } from "./fairlead.mjs";
import { Kube } from "./kube.mjs";
import { Kubelet } from "./kubelet.mjs";
import { SHOTS, shoot as takePictures } from "./shots.mjs";

const CART = "harbor.example.com/shop/cart:v2";

const kube = new Kube(process.env.KUBE);
const kubelet = new Kubelet();
const browser = new Browser();
const servers = [];
let fairlead;
let page;

function kubeconfig() {
  const { cluster } = kube.config.clusters[0];
  const { user } = kube.config.users.find(({ name }) => name === "certificate");
  return { apiVersion: "v1", kind: "Config", clusters: [{ name: "eu", cluster }], users: [{ name: "admin", user }], contexts: [{ name: "eu", context: { cluster: "eu", user: "admin" } }] };
}

const go = (to) => page.goto(fairlead.origin + to);
const dialog = () => page.locator("dialog");
const cell = (text) => page.locator(".td", { hasText: text }).first();
const running = (name = "web") => ({ phase: "Running", podIP: "10.1.0.1", podIPs: [{ ip: "10.1.0.1" }], containerStatuses: [{ name, ready: true, restartCount: 0, image: "x", imageID: "x", state: { running: { startedAt: new Date().toISOString() } } }] });
const deployment = () => kube.request("GET", "/apis/apps/v1/namespaces/shop/deployments/web");

async function listen(address, answer) {
  const server = http.createServer(answer);
  servers.push(server);
  await new Promise((listening) => server.listen(0, address, listening));
  return server.address().port;
}

/** A stand-in for the metrics server: its two kinds, as definitions, with an object of each. */
async function metrics() {
  const define = (plural, kind, scope) => kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
    metadata: { name: `${plural}.metrics.k8s.io`, annotations: { "api-approved.kubernetes.io": "unapproved, a stand-in" } },
    spec: { group: "metrics.k8s.io", scope, names: { plural, singular: kind.toLowerCase(), kind, listKind: `${kind}List` }, versions: [{ name: "v1beta1", served: true, storage: true, schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } } }] },
  });
  await define("nodes", "NodeMetrics", "Cluster");
  await define("pods", "PodMetrics", "Namespaced");
  const api = "/apis/metrics.k8s.io/v1beta1";
  const make = (path, body) => until("the definition is served", () => kube.request("POST", path, { apiVersion: "metrics.k8s.io/v1beta1", ...body }).then(() => true, () => false));
  await make(`${api}/nodes`, { kind: "NodeMetrics", metadata: { name: "node-1" }, usage: { cpu: "1500m", memory: "3Gi" } });
  await make(`${api}/namespaces/shop/pods`, { kind: "PodMetrics", metadata: { name: "web-0", namespace: "shop" }, containers: [{ name: "web", usage: { cpu: "250m", memory: "300Mi" } }] });
}

/** A stand-in for Prometheus, behind a Service of the cluster; none where this machine has loopback alone. */
async function prometheus() {
  const address = Object.values(networkInterfaces()).flat().find(({ family, internal }) => family === "IPv4" && !internal)?.address;
  if (!address) return false;
  const port = await listen(address, (request, response) => {
    const { searchParams } = new URL(request.url, "http://prometheus");
    const [query, start, end, step] = ["query", "start", "end", "step"].map((name) => searchParams.get(name));
    const values = [];
    for (let at = Number(start); at <= Number(end); at += Number(step)) values.push([at, String(/cpu/.test(query) ? 0.4 + 0.2 * Math.sin(at / 300) : 3e8 + 5e7 * Math.cos(at / 500))]);
    response.setHeader("content-type", "application/json").end(JSON.stringify({ status: "success", data: { resultType: "matrix", result: [{ metric: {}, values }] } }));
  });
  await kube.namespace("monitoring");
  await kube.request("POST", "/api/v1/namespaces/monitoring/services", { metadata: { name: "prometheus" }, spec: { ports: [{ port: 9090, targetPort: port }] } });
  // An API server passes on to addresses of pods alone.
  await kube.pod("monitoring", "prometheus-0", { spec: { nodeName: "node-1" } });
  await kube.status("monitoring", "prometheus-0", { ...running(), podIP: address, podIPs: [{ ip: address }] });
  await kube.request("POST", "/api/v1/namespaces/monitoring/endpoints", { metadata: { name: "prometheus" }, subsets: [{ addresses: [{ ip: address, targetRef: { kind: "Pod", namespace: "monitoring", name: "prometheus-0" } }], ports: [{ port }] }] });
  return true;
}

let hasPrometheus;

before(async () => {
  await kube.namespace("shop");
  await Promise.all([kubelet.start(kube), browser.start(), metrics()]);
  hasPrometheus = await prometheus();
  await kubelet.register(kube, "node-1");
  await kube.request("PATCH", "/api/v1/nodes/node-1/status", { status: { allocatable: { cpu: "4", memory: "8Gi", pods: "110" }, capacity: { cpu: "4", memory: "8Gi", pods: "110" } } }, "application/merge-patch+json");
  await kube.pod("shop", "web-0", { labels: { app: "web" }, spec: { nodeName: "node-1", volumes: [{ name: "settings", configMap: { name: "settings" } }], containers: [{ name: "web", image: CART, volumeMounts: [{ name: "settings", mountPath: "/etc/web", readOnly: true }] }] } });
  await kube.status("shop", "web-0", running());
  await kube.request("POST", "/api/v1/namespaces/shop/configmaps", { metadata: { name: "settings" }, data: { colour: "green" } });
  await kube.request("POST", "/apis/apps/v1/namespaces/shop/deployments", { metadata: { name: "web" }, spec: { replicas: 1, selector: { matchLabels: { app: "web" } }, template: { metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "web", image: CART, env: [{ name: "REGION", value: "eu" }], resources: { requests: { cpu: "100m" } } }] } } } });
  await kube.request("POST", "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies", { metadata: { name: "nobody" }, spec: { podSelector: { matchLabels: { app: "web" } }, policyTypes: ["Ingress"] } });
  fairlead = await new Fairlead(kubeconfig(), { FAIRLEAD_GUARD_CLUSTER: "eu", FAIRLEAD_FLEET_PROMETHEUS: "monitoring/prometheus:9090" }).start();
  await until("eu is ready", async () => (await fairlead.ask("GET", "/clusters")).clusters.find(({ name }) => name === "eu")?.state === "ready", 60_000);
  const session = await browser.session(fairlead);
  page = await session.newPage();
  await page.goto(fairlead.link);
  await page.locator(".frame").waitFor();
}, { timeout: 180_000 });

after(async () => {
  await browser.stop().catch(() => {});
  await fairlead?.stop();
  kubelet.stop();
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

/** What the console says in German: by the English. */
const GERMAN = new Map([...readFileSync(new URL("../src/languages/de.ts", import.meta.url), "utf8").matchAll(/^ {2}(".*?[^\\]"): (".*"),$/gm)].map(([, message, text]) => [JSON.parse(message), JSON.parse(text)]));

/** A tab of somebody who reads another language, in a small window. */
async function reader(locale) {
  const context = await browser.session(fairlead, { locale, viewport: { width: 800, height: 600 } });
  const tab = await context.newPage();
  await tab.goto(fairlead.origin + (await fairlead.ask("POST", "/login-links")).path);
  await tab.locator(".frame").waitFor();
  return { context, tab };
}

const shoot = (name, path) => takePictures(page, name, () => go(path));

describe("what people work with", () => {
  test("an object becomes a favourite, a table a saved search; both are found again", async () => {
    await go("/c/eu/pods/shop/web-0");
    await page.getByRole("button", { name: "Favourite" }).click();
    const side = page.getByRole("navigation", { name: "Pages" });
    await side.getByRole("link", { name: "web-0" }).waitFor();
    await go("/c/eu/pods?ns=shop&q=running");
    await page.getByRole("button", { name: "Save this search" }).click();
    await dialog().getByLabel("Name").fill("What runs in shop");
    await dialog().getByRole("button", { name: "Save" }).click();
    await side.getByRole("link", { name: "What runs in shop" }).waitFor();
    // Kept over a reload, and found from anywhere.
    await go("/events");
    await page.getByRole("heading", { name: "Events" }).waitFor();
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox").fill("what runs");
    await page.getByRole("option", { name: /Favourite\s*What runs in shop/ }).click();
    await page.locator(".rows .tr", { hasText: "web-0" }).waitFor();
    assert.equal(new URL(page.url()).search, "?ns=shop&q=running");
    await page.getByRole("button", { name: "Forget this search" }).click();
    await side.getByRole("link", { name: "What runs in shop" }).waitFor({ state: "detached" });
    const stored = await page.evaluate(() => JSON.stringify({ ...localStorage }));
    assert.ok(!/token|csrf|session/i.test(stored), stored);
  });

  test("image, environment and resources are changed without YAML: tried, shown, then applied", async () => {
    await go("/c/eu/deployments.apps/shop/web");
    await page.getByRole("button", { name: "Containers…" }).click();
    await dialog().getByLabel("Image").fill("harbor.example.com/shop/cart:v3");
    await dialog().getByLabel("limits memory").fill("512Mi");
    await dialog().getByRole("button", { name: "Add a variable" }).click();
    await dialog().getByLabel("Variable", { exact: true }).last().fill("LEVEL");
    await dialog().getByLabel("Value of LEVEL").fill("debug");
    await axe("containers", page);
    await dialog().getByRole("button", { name: "Review" }).click();
    await dialog().locator(".added", { hasText: "cart:v3" }).waitFor();
    assert.equal((await deployment()).spec.template.spec.containers[0].image, CART, "a review changes nothing");
    await dialog().getByRole("button", { name: "Apply" }).click();
    await dialog().waitFor({ state: "detached" });
    const [container] = (await deployment()).spec.template.spec.containers;
    assert.deepEqual([container.image, container.env, container.resources], ["harbor.example.com/shop/cart:v3", [{ name: "REGION", value: "eu" }, { name: "LEVEL", value: "debug" }], { requests: { cpu: "100m" }, limits: { memory: "512Mi" } }]);
  });

  test("an object is copied: without what is its own alone, tried first", async () => {
    await go("/c/eu/configmaps/shop/settings");
    await page.getByRole("link", { name: "Clone…" }).click();
    await page.locator(".cm-content").getByText("settings-copy").waitFor();
    assert.doesNotMatch(await page.locator(".cm-content").innerText(), /uid|resourceVersion|creationTimestamp/);
    await page.getByRole("button", { name: "Review" }).click();
    await page.getByText("would be created: ConfigMap shop/settings-copy").waitFor();
    await page.getByRole("button", { name: "Apply" }).click();
    const copy = await until("it is made", () => kube.request("GET", "/api/v1/namespaces/shop/configmaps/settings-copy").catch(() => null));
    assert.deepEqual(copy.data, { colour: "green" });
  });

  test("a workload shows its pods, a pod its volumes; each leads on", async () => {
    await go("/c/eu/deployments.apps/shop/web?tab=pods");
    await page.locator("main").getByRole("link", { name: "web-0", exact: true }).click();
    await page.getByRole("heading", { name: "web-0" }).waitFor();
    await page.keyboard.press("v");
    await page.getByText("/etc/web").waitFor();
    await page.getByRole("link", { name: "settings", exact: true }).click();
    await page.getByRole("heading", { name: "settings" }).waitFor();
    await go("/c/eu/nodes/-/node-1?tab=pods");
    await page.locator("main").getByRole("link", { name: "web-0", exact: true }).waitFor();
  });

  test("usage is in the tables of pods and nodes, on the cluster's page, and over time", async (context) => {
    await go("/c/eu/pods?ns=shop");
    await page.locator(".tr", { hasText: "web-0" }).getByText("250m").waitFor();
    await page.locator(".tr", { hasText: "web-0" }).getByText("300 MiB").waitFor();
    await go("/c/eu/nodes");
    await page.locator(".tr", { hasText: "node-1" }).getByText("1.5").first().waitFor();
    await go("/c/eu");
    await page.getByText("1.5 of 4").waitFor();
    if (!hasPrometheus) {
      const why = "this machine has no address but loopback: the API server passes nothing on to one";
      assert.ok(!process.env.CI, why);
      return context.skip(why);
    }
    await go("/c/eu/pods/shop/web-0?tab=usage");
    await page.getByRole("img", { name: /^CPU: .* now, at most/ }).waitFor();
    await page.getByRole("img", { name: /^Memory: \d+ MiB now/ }).waitFor();
    await page.getByText("as monitoring/prometheus:9090 says").waitFor();
    await axeInBoth("usage", page);
    await go("/c/eu?tab=usage&minutes=1440");
    await page.getByRole("img", { name: /^CPU: / }).waitFor();
  });

  test("a shell on a node says what it waits for, runs, and leaves nothing", async () => {
    await go("/c/eu/nodes/-/node-1?tab=shell");
    await page.getByText("A privileged pod is started on the node").waitFor();
    await page.getByRole("button", { name: "Start and open" }).click();
    const pods = () => kube.request("GET", "/api/v1/namespaces/kube-system/pods").then(({ items }) => items);
    const [pod] = await until("its pod is made", async () => ((await pods()).length ? pods() : null));
    assert.deepEqual([pod.spec.nodeName, pod.spec.hostPID], ["node-1", true]);
    const screen = page.locator(".terminal .xterm-rows");
    await screen.getByText("waiting for the container").first().waitFor();
    await kube.status("kube-system", pod.metadata.name, running(pod.spec.containers[0].name));
    await screen.getByText("$").first().waitFor();
    await page.keyboard.type("uname");
    await screen.getByText("uname").first().waitFor();
    await page.keyboard.press("Control+d");
    await page.getByText("The shell has ended with code 7.").waitFor();
    await until("its pod is gone", async () => (await pods()).length === 0);
  });

  test("a debug container is added, or why there can be none is said", async () => {
    const served = (await kube.request("GET", "/api/v1")).resources.some(({ name }) => name === "pods/ephemeralcontainers");
    await go("/c/eu/pods/shop/web-0?tab=debug");
    await page.getByLabel("Sees the processes of").selectOption("web");
    await page.getByRole("button", { name: "Add and open" }).click();
    if (served) await page.locator(".terminal .xterm-rows").getByText("waiting for the container").first().waitFor();
    else await page.getByRole("alert").getByText("no debug containers").waitFor();
  });

  test("an image's findings are shown, and one is excepted with a reason and an end", async () => {
    await go("/images");
    await page.getByRole("heading", { name: "Nothing is known of images" }).waitFor();
    const finding = (VulnerabilityID, Severity, fixed) => ({ VulnerabilityID, PkgName: "openssl", InstalledVersion: "3.0.1", ...(fixed ? { FixedVersion: fixed } : {}), Severity });
    const report = { SchemaVersion: 2, ArtifactName: CART, CreatedAt: "2026-01-02T00:00:00Z", Results: [{ Vulnerabilities: [finding("CVE-2026-0001", "CRITICAL", "3.0.2"), finding("CVE-2026-0002", "HIGH")] }] };
    await page.locator("input[type=file]").setInputFiles({ name: "report.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify(report)) });
    await page.getByText("report.json: 1 of 1 taken.").waitFor();
    await page.getByRole("link", { name: CART }).click();
    await page.getByText("CVE-2026-0002").waitFor();
    await page.getByLabel("with a fix").check();
    await page.getByText("CVE-2026-0002").waitFor({ state: "detached" });
    await axeInBoth("an image", page);
    await page.locator(".tr", { hasText: "CVE-2026-0001" }).getByRole("button", { name: "Add exception…" }).click();
    await dialog().getByLabel("Why").fill("the code is not reached");
    await dialog().getByRole("button", { name: "Except", exact: true }).click();
    await page.locator(".tr", { hasText: "CVE-2026-0001" }).getByText("excepted").waitFor();
    await go("/images?tab=exceptions");
    await page.locator(".tr", { hasText: "the code is not reached" }).getByRole("button", { name: "End" }).click();
    await dialog().getByRole("button", { name: "End it" }).click();
    await page.getByRole("heading", { name: "No exception" }).waitFor();
    assert.deepEqual((await fairlead.ask("GET", "/images/exceptions")).exceptions, []);
  });

  test("a receiver is added and tested, and a rule says what it is told", async () => {
    const told = [];
    let takes = true;
    const port = await listen("127.0.0.1", (request, response) => {
      let body = "";
      request.on("data", (piece) => { body += piece; }).on("end", () => {
        told.push({ body, signature: request.headers["webhook-signature"] });
        response.writeHead(takes ? 200 : 500).end();
      });
    });
    await go("/receivers");
    await page.getByRole("button", { name: "Add a receiver" }).click();
    await dialog().getByLabel("Name").fill("siem");
    await dialog().getByLabel("URL").fill(`http://127.0.0.1:${port}/events`);
    await dialog().getByLabel("Signing key").fill("sixteen bytes and more");
    await dialog().getByRole("button", { name: "Add", exact: true }).click();
    const line = page.locator(".tr", { hasText: "siem" });
    await until("it takes a test", async () => {
      await line.getByRole("button", { name: "Test" }).click();
      return page.getByText("siem took the test.").first().waitFor({ timeout: 3000 }).then(() => true, () => false);
    });
    assert.ok(told.some(({ body, signature }) => /receiver\.test/.test(body) && signature?.startsWith("v1,")), JSON.stringify(told));
    assert.ok(!(await page.content()).includes("sixteen bytes"), "a secret goes in, and never comes out");
    takes = false;
    await line.getByRole("button", { name: "Test" }).click();
    await page.getByText("siem did not take the test").waitFor();
    await axeInBoth("receivers", page);

    await go("/receivers?tab=responses");
    await page.getByRole("button", { name: "Add a response rule" }).click();
    await dialog().getByLabel("Name", { exact: true }).fill("tell-siem");
    await dialog().getByLabel("At least").selectOption("warning");
    await dialog().getByLabel("siem").check();
    await axe("a response rule", page);
    await dialog().getByRole("button", { name: "Add", exact: true }).click();
    await cell("at least warning").waitFor();
    const rule = (await fairlead.ask("GET", "/responses")).responses.find(({ name }) => name === "tell-siem");
    assert.deepEqual([rule.state, rule.spec.event, rule.spec.receivers], ["active", "violation", ["siem"]]);
    await page.locator(".tr", { hasText: "tell-siem" }).getByRole("button", { name: "Delete" }).click();
    await dialog().locator("input.mono").fill("tell-siem");
    await dialog().getByRole("button", { name: "Delete" }).click();
    await page.getByRole("heading", { name: "Nothing is done about events" }).waitFor();
  });

  test("policies are told in their order, where they are in force, and why a connection does not pass", async () => {
    await until("they are read", () => fairlead.ask("GET", "/policies").then(({ policies }) => policies.length > 0, () => false), 60_000);
    await go("/policies");
    await page.locator(".tr", { hasText: "shop/nobody" }).getByText("0 of 1").waitFor();
    await page.locator(".tr", { hasText: "node-1" }).getByText("no agent").first().waitFor();
    await axeInBoth("policies", page);
    await go("/policies?tab=list");
    await cell("shop/nobody").waitFor();
    await go("/policies?tab=explain");
    await page.getByLabel("From").fill("192.0.2.7");
    await page.getByLabel("To", { exact: true }).fill("shop/web-0");
    await page.getByLabel("Port").fill("8080");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByText("denied", { exact: true }).waitFor();
    await page.getByRole("region", { name: "Arriving at shop/web-0" }).getByText(/NetworkPolicy shop\/nobody/).first().waitFor();
    await axeInBoth("an explanation", page);
  });

  test("a namespace is drawn as a map, and a table says the same; around one object too", async () => {
    await kube.request("POST", "/api/v1/namespaces/shop/services", { metadata: { name: "web" }, spec: { selector: { app: "web" }, ports: [{ port: 80 }] } });
    await go("/map?cluster=eu&ns=shop");
    const table = page.getByRole("complementary", { name: "The same as a table" });
    await table.getByRole("link", { name: "web-0" }).waitFor();
    await page.locator(".graph .wait").waitFor({ state: "detached" });
    await table.getByText("NetworkPolicy", { exact: true }).waitFor();
    await axeInBoth("a map", page);
    await go("/c/eu/deployments.apps/shop/web?tab=related");
    await page.getByRole("link", { name: "As a map" }).click();
    await page.getByRole("button", { name: "around Deployment/web ✕" }).waitFor();
    await table.getByText("Deployment", { exact: true }).waitFor();
    assert.equal(await table.getByText("NetworkPolicy", { exact: true }).count(), 0, "nothing hangs it on the Deployment, whose pods are another's");
    await go("/map?cluster=eu&ns=shop&node=Service/web");
    await table.getByText("selects").waitFor();
  });

  test("a port-forward that is open is listed on Now, and ended there", async () => {
    await go("/now");
    const list = page.getByRole("region", { name: "Port-forwards" });
    await list.getByText("None is open.").waitFor();
    // The kubelet's stand-in connects to this machine.
    const silent = net.createServer((socket) => socket.resume());
    await new Promise((listening) => silent.listen(0, "127.0.0.1", listening));
    await page.evaluate((port) => {
      const to = new URL(`/api/v1/clusters/eu/resources/pods/web-0/forward?namespace=shop&port=${port}`, location.href);
      to.protocol = "ws:";
      const socket = new WebSocket(to);
      globalThis.forward = { closed: new Promise((closed) => (socket.onclose = ({ reason }) => closed(reason))) };
      socket.onopen = () => socket.send("hello");
    }, silent.address().port);
    await list.getByRole("link", { name: "shop/web-0" }).waitFor();
    await list.getByText("5 B").first().waitFor();
    await axe("port-forwards", page);
    await list.getByRole("button", { name: "End the port-forward to web-0" }).click();
    await dialog().getByRole("button", { name: "End" }).click();
    assert.match(await page.evaluate(() => globalThis.forward.closed), /local has ended this port-forward/);
    await list.getByText("None is open.").waitFor();
    silent.close();
  });

  test("a kubeconfig of the session is downloaded, and opens the Kubernetes API and nothing else", async () => {
    await go("/");
    await page.getByRole("button", { name: "Account" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Kubeconfig for kubectl" }).click()]);
    assert.equal(download.suggestedFilename(), "fairlead.kubeconfig");
    const text = readFileSync(await download.path(), "utf8");
    const [, token] = /fairlead:(flk_[^@]+)@/.exec(text);
    const headers = { authorization: `Bearer ${token}` };
    const ask = (path) => fetch(fairlead.origin + path, { headers });
    const pods = await (await ask("/api/v1/clusters/eu/proxy/api/v1/namespaces/shop/pods")).json();
    assert.ok(pods.items.some(({ metadata }) => metadata.name === "web-0"), JSON.stringify(pods).slice(0, 300));
    assert.equal((await ask("/api/v1/me")).status, 401);
    const kept = await page.evaluate(() => JSON.stringify([location.href, { ...localStorage }, { ...sessionStorage }]));
    assert.doesNotMatch(kept, /flk_/);
  });

  test("a key is moved, and is pressed at its new place from then on", async () => {
    await go("/c/eu/pods/shop/web-0");
    await page.getByRole("heading", { name: "web-0" }).waitFor();
    await page.keyboard.press("?");
    await dialog().getByRole("button", { name: /^YAML: y/ }).click();
    await page.keyboard.press("Y");
    await dialog().getByRole("button", { name: /^YAML: Y/ }).waitFor();
    await axe("keys", page);
    await dialog().getByRole("button", { name: "Close" }).click();
    await page.keyboard.press("y");
    await page.keyboard.press("Y");
    await page.waitForURL(/tab=yaml/);
    await page.evaluate(() => localStorage.removeItem("fairlead.keys"));
  });

  test("a mesh shows its tunnels, those that do not answer first, and whom it lets in from outside", async () => {
    for (const kind of ["wireguardnodes", "wireguardpeers"]) {
      const definition = readFileSync(new URL(`../../api/crds/${kind}.yaml`, import.meta.url), "utf8");
      await kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, "application/yaml");
    }
    const [key, now] = ["b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=", new Date().toISOString()];
    await kube.request("POST", "/api/v1/nodes", { metadata: { name: "gate-1", annotations: { "fairlead.dev/wireguard-endpoint": "gate.example.com:51821" } }, spec: { podCIDR: "10.1.0.0/24", podCIDRs: ["10.1.0.0/24"] } });
    const nodes = "/apis/fairlead.dev/v1alpha1/wireguardnodes";
    const said = { apiVersion: "fairlead.dev/v1alpha1", kind: "WireguardNode", metadata: { name: "gate-1" }, spec: { node: "gate-1", publicKey: key, port: 51821 } };
    await until("the definition is served", () => kube.request("POST", nodes, said).then(() => true, () => false));
    const tunnel = (peer, state, more) => ({ peer, state, receivedBytes: 5_000_000, sentBytes: 7_000, ...more });
    const tunnels = [tunnel("prod--us--a", "Up", { endpoint: "192.0.2.7:51821", lastHandshake: now, lossPercent: 3, roundTripMicros: 2400, mtu: 1420, carries: true }), tunnel("prod--us--b", "Down", { endpoint: "192.0.2.8:51821" })];
    await kube.request("PATCH", `${nodes}/gate-1/status`, { status: { implementation: "kernel", mtu: 1420, peers: 2, unreachable: 1, observed: now, tunnels } }, "application/merge-patch+json");
    const clusters = [{ name: "eu", clusterRef: "eu", allowedNetworks: ["10.1.0.0/16"] }, { name: "us", clusterRef: "us", allowedNetworks: ["10.2.0.0/16"] }];
    const laptop = { name: "laptop", publicKey: "AAA8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=", addresses: ["10.99.0.1"], networks: ["192.168.7.0/24"] };
    await fairlead.ask("PUT", "/meshes/fairlead/prod", { spec: { dataPlane: "wireguard", externalNetworks: ["10.99.0.0/24"], externalPeers: [laptop], clusters } });
    await go("/mesh");
    const mesh = page.getByRole("region", { name: "Mesh prod" });
    const table = mesh.getByRole("table", { name: "Tunnels of prod" });
    await table.getByText("prod--us--b").waitFor();
    const [first, second] = await table.locator(".tr").allInnerTexts();
    assert.match(first, /eu\/gate-1\s+prod--us--b\s+Down/);
    for (const seen of ["Up", "in use", "2 ms", "3 %", "5.0 MB", "7.0 kB", "1420", "192.0.2.7:51821"]) assert.ok(second.includes(seen), `${seen} in ${second}`);
    await mesh.getByRole("img", { name: /eu and us: 1 tunnels answer, 1 do not/ }).waitFor();
    // Of the cluster that is not there it says why.
    await mesh.getByText("us", { exact: true }).first().waitFor();
    await page.getByLabel("Filter tunnels of prod").fill("192.0.2.7");
    await table.getByText("prod--us--b").waitFor({ state: "detached" });
    await axeInBoth("mesh", page);
    await shoot("tunnels", "/mesh");
    await go("/mesh");
    await mesh.getByRole("button", { name: "Revoke laptop" }).click();
    await dialog().getByRole("textbox").fill("laptop");
    await dialog().getByRole("button", { name: "Revoke" }).click();
    await mesh.getByRole("table", { name: "Machines outside of prod" }).waitFor({ state: "detached" });
    const { spec } = await fairlead.ask("GET", "/meshes/fairlead/prod");
    assert.deepEqual(spec.externalPeers ?? [], []);
  });

  test("pages are in the reader's language, nothing cut in a small window; another is chosen, and remembered", async () => {
    const ofCatalogues = () => browser.requests.filter((url) => /\/assets\/(de|ja|zh)-/.test(url));
    assert.deepEqual(ofCatalogues(), [], "who reads English fetches no catalogue");
    assert.ok(GERMAN.size > 1000, `${GERMAN.size} messages`);
    const { context, tab } = await reader("de-CH");
    assert.equal(ofCatalogues().length, 1);
    for (const path of ["/", "/c/eu", "/c/eu/pods", "/c/eu/pods/shop/web-0", "/search?q=web", "/map?cluster=eu&ns=shop", "/events", "/traffic", "/mesh", "/policies", "/admission?tab=try", "/images", "/net", "/now", "/doctor", "/receivers", "/replay", "/access", "/create?cluster=eu"]) {
      await tab.goto(fairlead.origin + path);
      await settled(tab);
      const seen = await tab.evaluate(() => {
        const shown = (selector) => [...document.querySelectorAll(selector)].filter((element) => element.checkVisibility() && element.getBoundingClientRect().width > 0);
        // The columns of a live table are the API server's.
        const words = shown("h1, h2, h3, .button, [role=table] .th, .label, legend, dt, [role=tab], nav a, .empty p").map((element) => element.textContent.trim());
        const more = shown("[placeholder], [aria-label]").flatMap((element) => [element.getAttribute("placeholder"), element.getAttribute("aria-label")]);
        const cut = shown(".button, h1, h2, .tabs a").filter((element) => element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).overflowX !== "visible");
        return { words: [...words, ...more].filter(Boolean), text: document.body.innerText, cut: cut.map((element) => element.textContent), wide: document.documentElement.scrollWidth - innerWidth };
      });
      const german = new Set(GERMAN.values());
      assert.deepEqual(seen.words.filter((word) => GERMAN.has(word) && !german.has(word)), [], `${path}: English`);
      assert.doesNotMatch(seen.text, /\{[a-z]\w*\}/i, `${path}: a place without its value`);
      assert.deepEqual([seen.cut, seen.wide], [[], 0], `${path}: cut`);
    }
    await tab.goto(fairlead.origin + "/");
    await tab.getByRole("heading", { name: "Flotte" }).waitFor();
    assert.equal(await tab.evaluate(() => document.documentElement.lang), "de-CH");
    await axe("in German", tab);
    await tab.getByRole("button", { name: "Sprache" }).click();
    await tab.getByRole("button", { name: "日本語" }).click();
    await tab.getByRole("heading", { name: "フリート" }).waitFor();
    await tab.getByRole("button", { name: "言語" }).click();
    await tab.getByRole("button", { name: "English" }).click();
    await tab.getByRole("heading", { name: "Fleet" }).waitFor();
    await tab.reload();
    await tab.getByRole("heading", { name: "Fleet" }).waitFor();
    await context.close();
  });

  test("pictures, where they are wanted", async () => {
    for (const locale of SHOTS ? ["de-DE", "ja-JP", "zh-CN"] : []) {
      const { context, tab } = await reader(locale);
      for (const [name, path] of Object.entries({ fleet: "/", cluster: "/c/eu", pods: "/c/eu/pods", pod: "/c/eu/pods/shop/web-0", mesh: "/mesh", access: "/access?tab=roles", policies: "/policies", images: "/images", receivers: "/receivers", now: "/now", doctor: "/doctor" })) {
        await tab.goto(fairlead.origin + path);
        await settled(tab);
        await tab.screenshot({ path: join(SHOTS, `${locale}-${name}.png`) });
      }
      await context.close();
    }
    for (const [name, path] of Object.entries({ images: "/images", image: `/images?image=${CART}`, receivers: "/receivers", policies: "/policies", explain: "/policies?tab=explain&from=192.0.2.7&to=shop/web-0&port=8080", usage: "/c/eu/pods/shop/web-0?tab=usage", pod: "/c/eu/pods/shop/web-0", volumes: "/c/eu/pods/shop/web-0?tab=volumes", workload: "/c/eu/deployments.apps/shop/web?tab=pods", fleet: "/", cluster: "/c/eu", pods: "/c/eu/pods", gone: "/c/eu/pods/shop/no-such-pod", running: "/admission?tab=running", events: "/events", map: "/map?cluster=eu&ns=shop", search: "/search?q=web", mesh: "/mesh", net: "/net", now: "/now", access: "/access", audit: "/access?tab=audit", create: "/create?cluster=eu", responses: "/receivers?tab=responses" })) await shoot(name, path);
  });

  test("no page broke the content security policy, complained, or asked another origin", () => {
    assert.deepEqual(browser.complaints, []);
  });
});
