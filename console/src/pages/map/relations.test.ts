import { expect, test } from "vitest";
import { applications, around, namespaceMap, part, takes, type MapObject, type MapPod } from "./relations";

const owner = (kind: string, name: string) => [{ uid: `${kind}/${name}`, kind, name, controller: true }];
const object = (path: string, kind: string, name: string, spec: Record<string, unknown> = {}, owners: MapObject["metadata"]["ownerReferences"] = undefined): MapObject => ({ path, kind, metadata: { name, uid: `${kind}/${name}`, ...(owners ? { ownerReferences: owners } : {}) }, spec, status: {} });

const SHOP: MapObject[] = [
  object("deployments.apps", "Deployment", "web", { replicas: 3, selector: { matchLabels: { app: "web" } }, template: { spec: { volumes: [{ configMap: { name: "settings" } }], containers: [{ env: [{ valueFrom: { secretKeyRef: { name: "key" } } }] }] } } }),
  object("replicasets.apps", "ReplicaSet", "web-1", { replicas: 3, selector: { matchLabels: { app: "web", hash: "1" } } }, owner("Deployment", "web")),
  object("replicasets.apps", "ReplicaSet", "web-0", { replicas: 0, selector: { matchLabels: { app: "web", hash: "0" } } }, owner("Deployment", "web")),
  object("services", "Service", "web", { selector: { app: "web" } }),
  object("services", "Service", "outside", {}),
  object("ingresses.networking.k8s.io", "Ingress", "front", { rules: [{ http: { paths: [{ backend: { service: { name: "web" } } }, { backend: { service: { name: "gone" } } }] } }] }),
  object("horizontalpodautoscalers.autoscaling", "HorizontalPodAutoscaler", "web", { scaleTargetRef: { kind: "Deployment", name: "web" } }),
];
const pods = (many: number, status = "Running"): MapPod[] => Array.from({ length: many }, (_, index) => ({ name: `web-1-${index}`, labels: { app: "web", hash: "1" }, status, ready: "1/1" }));

const lines = ({ nodes, edges }: ReturnType<typeof namespaceMap>) => edges.map(({ from, to, how }) => `${nodes[from]?.id} ${how} ${nodes[to]?.id}`);

test("what is in a namespace hangs together as it does in the cluster", () => {
  const map = namespaceMap(SHOP, [...pods(2), { name: "lone", labels: {}, status: "CrashLoopBackOff", ready: "0/1" }], false);
  expect(lines(map).sort()).toEqual([
    "Deployment/web owns ReplicaSet/web-1",
    "Deployment/web uses ConfigMap/settings",
    "Deployment/web uses Secret/key",
    "HorizontalPodAutoscaler/web scales Deployment/web",
    "Ingress/front routes to Service/gone",
    "Ingress/front routes to Service/web",
    "ReplicaSet/web-1 owns Pod/web-1-0",
    "ReplicaSet/web-1 owns Pod/web-1-1",
    "Service/web selects Pod/web-1-0",
    "Service/web selects Pod/web-1-1",
  ]);
  expect(map.nodes.find(({ id }) => id === "Pod/lone")?.tone).toBe("bad");
  expect(map.nodes.some(({ id }) => id === "ReplicaSet/web-0")).toBe(false);
  expect(map.nodes.find(({ id }) => id === "Deployment/web")).toMatchObject({ state: "0/3", tone: "warn" });
});

test("two thousand pods of one owner are a node for each state, or two thousand", () => {
  const many = [...pods(1990), ...pods(10, "ImagePullBackOff").map((pod, index) => ({ ...pod, name: `web-1-bad-${index}` }))];
  const folded = namespaceMap(SHOP, many, false);
  expect(folded.nodes.filter(({ kind }) => kind === "Pod").map(({ name, state, tone }) => [name, state, tone])).toEqual([["1990 pods of web-1", "Running", ""], ["10 pods of web-1", "ImagePullBackOff", "bad"]]);
  const each = namespaceMap(SHOP, many, true);
  expect(each.nodes.filter(({ kind }) => kind === "Pod")).toHaveLength(2000);
  expect(each.edges.filter(({ how }) => how === "selects")).toHaveLength(2000);
});

test("pods that nobody owns are one node for each state when there are many", () => {
  const lone = Array.from({ length: 40 }, (_, index) => ({ name: `lone-${index}`, labels: {}, status: index ? "Running" : "Pending", ready: "1/1" }));
  const pods = namespaceMap([], lone, false).nodes.map(({ name, tone }) => [name, tone]);
  expect(pods).toEqual([["lone-0", "warn"], ["39 pods without an owner", ""]]);
});

test("a part is what hangs together with one thing, and what many share leads no further", () => {
  const other = object("deployments.apps", "Deployment", "other", { template: { spec: { volumes: [{ configMap: { name: "settings" } }] } } });
  const map = namespaceMap([...SHOP, other], pods(2), false);
  const near = part(map, around(map, "Pod/web-1-1"));
  expect(near.nodes.map(({ id }) => id)).toContain("ConfigMap/settings");
  expect(near.nodes.map(({ id }) => id)).not.toContain("Deployment/other");
  expect(near.nodes.map(({ id }) => id)).not.toContain("Service/outside");
  expect(around(map, "Deployment/no-such").size).toBe(map.nodes.length);
  const groups = applications(map);
  const of = (id: string) => groups[map.nodes.findIndex((node) => node.id === id)];
  expect(of("Pod/web-1-0")).toBe(of("Deployment/web"));
  expect(of("Deployment/other")).not.toBe(of("Deployment/web"));
});

test("selectors take what an API server's take", () => {
  expect(takes({ matchExpressions: [{ key: "a", operator: "In", values: ["b"] }] }, { a: "b" })).toBe(true);
  expect(takes({ matchExpressions: [{ key: "a", operator: "NotIn", values: ["b"] }] }, {})).toBe(true);
  expect(takes({ matchExpressions: [{ key: "a", operator: "Exists" }] }, {})).toBe(false);
  expect(takes({ matchExpressions: [{ key: "a", operator: "Odd" }] }, { a: "b" })).toBe(false);
});
