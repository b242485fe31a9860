// The pictures of the README: four clusters, of which one does not answer and one refuses us, with some hundred
// pods as they are on a bad day.
//
//   FAIRLEAD_BIN=… KUBE_FIRST=kubeconfig KUBE_SECOND=kubeconfig node test/pictures.mjs DIRECTORY
//
// Statuses are what controllers and kubelets write, of which there are none here.
import { join } from "node:path";
import { settled } from "./axe.mjs";
import { Browser, Fairlead, Proxy, until } from "./fairlead.mjs";
import { Kube } from "./kube.mjs";

const DIRECTORY = process.argv[2] ?? process.env.PICTURES;
const kube = { "prod-eu": new Kube(process.env.KUBE_FIRST), "prod-us": new Kube(process.env.KUBE_SECOND) };
const silent = new Proxy();
const MINUTE = 60_000;
const ago = (minutes) => new Date(Date.now() - minutes * MINUTE).toISOString().replace(/\.\d+Z/, "Z");

/** Deployments: namespace, name, replicas, image. */
const APPS = [
  ["shop", "web", 12, "shop/web:5.14.2"], ["shop", "cart", 8, "shop/cart:2.1.1"], ["shop", "catalogue", 9, "shop/catalogue:3.8.0"], ["shop", "checkout", 6, "shop/checkout:1.31.4"],
  ["shop", "recommendations", 6, "shop/recommendations:0.9.12"], ["shop", "search", 5, "shop/search:4.2.0"], ["payments", "ledger", 4, "pay/ledger:7.0.3"], ["payments", "fraud-scoring-worker", 7, "pay/fraud-scoring:1.12.0"],
  ["payments", "payouts", 3, "pay/payouts:2.6.1"], ["platform", "ingress-gateway", 6, "platform/gateway:1.29.1"], ["platform", "image-proxy", 4, "platform/image-proxy:1.4.0"], ["observability", "otel-collector", 10, "otel/collector:0.104.0"],
  ["observability", "loki-read", 5, "grafana/loki:3.1.0"], ["observability", "tempo-query", 3, "grafana/tempo:2.5.0"],
];
/** What is wrong today: of a deployment's pods, from the first on. */
const TROUBLE = {
  cart: ["CrashLoopBackOff", "CrashLoopBackOff"], "fraud-scoring-worker": ["ImagePullBackOff"], "otel-collector": ["ContainerCreating", "ContainerCreating"], "loki-read": ["Pending"],
};

/** Letters and digits that are the same in every run. */
function* letters() {
  let seed = 20_261_118;
  for (;;) {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    yield "bcdfghjklmnpqrstvwxz2456789"[(seed >> 8) % 27];
  }
}
const letter = letters();
const word = (length) => Array.from({ length }, () => letter.next().value).join("");

function status(state, name, restarts) {
  const container = { name, image: "x", imageID: "x", restartCount: restarts };
  const started = { startedAt: ago(60 * 26) };
  const conditions = (ready) => [["Initialized", "True"], ["Ready", ready], ["ContainersReady", ready], ["PodScheduled", "True"]].map(([type, status]) => ({ type, status, lastTransitionTime: ago(ready === "True" ? 1500 : 18), ...(status === "False" ? { reason: "ContainersNotReady", message: `containers with unready status: [${name}]` } : {}) }));
  const waiting = (reason, message) => ({ ...container, ready: false, state: { waiting: { reason, message } } });
  switch (state) {
    case "CrashLoopBackOff":
      return { phase: "Running", conditions: conditions("False"), containerStatuses: [{ ...waiting(state, `back-off 5m0s restarting failed container=${name}`), restartCount: 17, lastState: { terminated: { exitCode: 137, reason: "OOMKilled", finishedAt: ago(4), startedAt: ago(6) } } }] };
    case "ImagePullBackOff":
      return { phase: "Pending", conditions: conditions("False"), containerStatuses: [waiting(state, "Back-off pulling image \"registry.example.com/pay/fraud-scoring:1.12.0\"")] };
    case "ContainerCreating":
      return { phase: "Pending", conditions: conditions("False"), containerStatuses: [waiting(state, "")] };
    case "Pending":
      return { phase: "Pending", conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/9 nodes are available: 9 Insufficient memory.", lastTransitionTime: ago(11) }] };
    default:
      return { phase: "Running", conditions: conditions("True"), startTime: ago(60 * 26), containerStatuses: [{ ...container, ready: true, started: true, state: { running: started } }] };
  }
}

async function world(cluster, nodes, share) {
  await Promise.all([...new Set(APPS.map(([namespace]) => namespace))].map((name) => cluster.namespace(name)));
  for (let number = 1; number <= nodes; number++) {
    const name = `node-${String.fromCharCode(97 + (number % 3))}${Math.ceil(number / 3)}`;
    const size = { cpu: "16", memory: "64Gi", pods: "110" };
    await cluster.request("POST", "/api/v1/nodes", { metadata: { name, labels: { "topology.kubernetes.io/zone": `zone-${"abc"[number % 3]}` } } });
    await cluster.request("PATCH", `/api/v1/nodes/${name}/status`, { status: { allocatable: size, capacity: size, nodeInfo: { kubeletVersion: "v1.20.2" }, conditions: [{ type: "Ready", status: number === nodes ? "False" : "True", reason: "KubeletReady", lastTransitionTime: ago(40) }] } }, "application/merge-patch+json");
  }
  let at = 0;
  await Promise.all(APPS.map(async ([namespace, name, all, image]) => {
    const replicas = Math.max(2, Math.round(all * share));
    const labels = { app: name, "app.kubernetes.io/part-of": namespace };
    const spec = { containers: [{ name, image: `registry.example.com/${image}`, resources: { requests: { cpu: "450m", memory: "1536Mi" }, limits: { memory: "2Gi" } } }] };
    const made = await cluster.request("POST", `/apis/apps/v1/namespaces/${namespace}/deployments`, { metadata: { name, labels }, spec: { replicas, selector: { matchLabels: { app: name } }, template: { metadata: { labels }, spec } } });
    const wrong = TROUBLE[name] ?? [];
    const ready = replicas - wrong.length;
    await cluster.request("PATCH", `/apis/apps/v1/namespaces/${namespace}/deployments/${name}/status`, { status: { replicas, updatedReplicas: replicas, readyReplicas: ready, availableReplicas: ready, unavailableReplicas: wrong.length } }, "application/merge-patch+json");
    const hash = word(9);
    const set = await cluster.request("POST", `/apis/apps/v1/namespaces/${namespace}/replicasets`, { metadata: { name: `${name}-${hash}`, labels, ownerReferences: [{ apiVersion: "apps/v1", kind: "Deployment", name, uid: made.metadata.uid, controller: true }] }, spec: { replicas, selector: { matchLabels: { app: name } }, template: { metadata: { labels }, spec } } });
    for (let index = 0; index < replicas; index++) {
      const pod = `${name}-${hash}-${word(5)}`;
      const number = at++;
      const node = wrong[index] === "Pending" ? {} : { nodeName: `node-${"abc"[number % 3]}${1 + (number % 3)}` };
      await cluster.pod(namespace, pod, { labels, ownerReferences: [{ apiVersion: "apps/v1", kind: "ReplicaSet", name: `${name}-${hash}`, uid: set.metadata.uid, controller: true }], spec: { ...spec, ...node } });
      const ip = `10.244.${1 + (number % 9)}.${10 + number}`;
      await cluster.status(namespace, pod, { ...status(wrong[index], name, number % 7 ? 0 : 1 + (number % 3)), ...(wrong[index] === "Pending" ? {} : { podIP: ip, podIPs: [{ ip }] }) });
      if (wrong[index]) await events(cluster, namespace, pod, name, wrong[index]);
    }
  }));
}

async function events(cluster, namespace, pod, name, state) {
  const said = {
    CrashLoopBackOff: [["BackOff", `Back-off restarting failed container ${name} in pod ${pod}`, 61], ["Unhealthy", "Readiness probe failed: Get \"http://10.244.3.21:8080/ready\": dial tcp: connection refused", 14]],
    ImagePullBackOff: [["Failed", "Failed to pull image \"registry.example.com/pay/fraud-scoring:1.12.0\": manifest unknown", 9]],
    ContainerCreating: [["FailedMount", "MountVolume.SetUp failed for volume \"config\": configmap \"otel-collector\" not found", 6]],
    Pending: [["FailedScheduling", "0/9 nodes are available: 9 Insufficient memory.", 22]],
  }[state] ?? [];
  for (const [index, [reason, message, count]] of said.entries()) {
    await cluster.request("POST", `/api/v1/namespaces/${namespace}/events`, { metadata: { name: `${pod}.${index}` }, involvedObject: { kind: "Pod", namespace, name: pod }, type: "Warning", reason, message, count, firstTimestamp: ago(40), lastTimestamp: ago(1 + index * 2), source: { component: "kubelet" } });
  }
}

function kubeconfig() {
  const entry = (name, from, change) => {
    const cluster = structuredClone(from.config.clusters[0].cluster);
    const user = structuredClone(from.config.users.find((one) => one.name === "certificate").user);
    change?.(cluster, user);
    return { name, cluster, user };
  };
  const entries = [
    ...Object.entries(kube).map(([name, from]) => entry(name, from)),
    entry("staging-ap", kube["prod-eu"], (cluster) => { cluster.server = `https://127.0.0.1:${silent.port}`; }),
    entry("edge-07", kube["prod-us"], (_, user) => {
      for (const key of Object.keys(user)) delete user[key];
      user.token = "nobody-knows-this";
    }),
  ];
  return { apiVersion: "v1", kind: "Config", clusters: entries.map(({ name, cluster }) => ({ name, cluster })), users: entries.map(({ name, user }) => ({ name, user })), contexts: entries.map(({ name }) => ({ name, context: { cluster: name, user: name } })) };
}

const browser = new Browser();
await Promise.all([silent.start(kube["prod-eu"].server), browser.start(), world(kube["prod-eu"], 9, 1), world(kube["prod-us"], 6, 0.6)]);
silent.dark = true;
const fairlead = await new Fairlead(kubeconfig()).start();
try {
  const states = async () => Object.fromEntries((await fairlead.ask("GET", "/clusters")).clusters.map(({ name, state }) => [name, state]));
  await until("each cluster is known for what it is", async () => {
    const known = await states();
    return known["prod-eu"] === "ready" && known["prod-us"] === "ready" && known["staging-ap"] === "unreachable" && known["edge-07"] === "unauthorised";
  }, 120_000);
  const session = await browser.session(fairlead, { viewport: { width: 1440, height: 860 }, colorScheme: "dark" });
  const page = await session.newPage();
  await page.goto(fairlead.link);
  await page.locator(".frame").waitFor();
  const take = async (name) => {
    await settled(page);
    await page.waitForTimeout(1000);
    await page.screenshot({ path: join(DIRECTORY, `${name}.png`) });
  };
  await page.goto(`${fairlead.origin}/c/*/pods?sort=Status`);
  await until("the bad ones are told", async () => /staging-ap/.test(await page.locator(".strip").innerText()) && (await page.locator(".strip .dot.ok").count()) === 2);
  await page.locator(".rows .tr", { hasText: "CrashLoopBackOff" }).nth(1).locator(".td").nth(3).click();
  await page.getByText("OOMKilled").first().waitFor();
  await take("console-pods");
  await page.setViewportSize({ width: 1440, height: 740 });
  await page.goto(`${fairlead.origin}/c/prod-eu`);
  await page.getByText("Latest warnings").waitFor();
  await take("console-cluster");
} finally {
  await browser.stop();
  await fairlead.stop();
  silent.stop();
}
