/**
 * What is in a namespace and how it hangs together: plain values in, a graph out.
 *
 * Pods come as rows of a table, which say their labels and no owners: a pod belongs to the workload whose
 * selector takes it and says most about it. Pods of one owner in one state are one node unless each is asked
 * for: a namespace with two thousand of them is still read at a glance.
 */
import { t } from "../../language";
import { isShort, wordTone } from "../../parts/tone";

export interface MapObject {
  /** As in addresses: `deployments.apps`. */
  path: string;
  kind: string;
  metadata: { name: string; uid?: string; labels?: Record<string, string>; ownerReferences?: { uid: string; kind: string; name: string; controller?: boolean }[]; deletionTimestamp?: string };
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
}

export interface MapPod {
  name: string;
  labels: Record<string, string>;
  /** In a word, as kubectl's STATUS has it. */
  status: string;
  /** `1/2` */
  ready: string;
}

export interface MapNode {
  /** `Deployment/web`; of pods that are one node, `Pod/OWNER/STATUS`. */
  id: string;
  kind: string;
  /** As in addresses; none of what is only referred to and has no page of its own. */
  path: string | null;
  name: string;
  /** In a word or a count. */
  state: string;
  tone: "" | "bad" | "warn" | "faint";
  /** The names of the pods that it stands for. */
  pods?: string[];
}

export interface MapEdge {
  from: number;
  to: number;
  /** What the first does to the second: owns, selects, routes to, scales, uses. */
  how: string;
}

export interface NamespaceMap {
  nodes: MapNode[];
  edges: MapEdge[];
}

type Json = Record<string, unknown>;
const field = (value: unknown, ...path: string[]): unknown => path.reduce<unknown>((at, key) => (at as Json | null | undefined)?.[key], value);
const list = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const count = (value: unknown): number => (typeof value === "number" ? value : 0);

/** Fewer pods than these are drawn each. */
const FEW = 4;
const WORKLOADS = ["ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"];

/** Whether a selector takes labels: of a Service plain labels, of others matchLabels and matchExpressions. */
export function takes(selector: unknown, labels: Record<string, string>): boolean {
  const { matchLabels, matchExpressions, ...plain } = (selector ?? {}) as Json;
  const exact = { ...(matchLabels as Json | undefined), ...plain };
  return (
    Object.entries(exact).every(([key, value]) => labels[key] === value) &&
    list(matchExpressions).every(({ key, operator, values }) => {
      const has = labels[text(key)];
      const among = has !== undefined && Array.isArray(values) && values.includes(has);
      return operator === "In" ? among : operator === "NotIn" ? !among : operator === "Exists" ? has !== undefined : operator === "DoesNotExist" ? has === undefined : false;
    })
  );
}

const says = (selector: unknown): number => {
  const { matchLabels, matchExpressions, ...plain } = (selector ?? {}) as Json;
  return Object.keys((matchLabels as Json | undefined) ?? {}).length + list(matchExpressions).length + Object.keys(plain).length;
};

function state({ kind, spec, status, metadata }: MapObject): { state: string; tone: MapNode["tone"] } {
  if (metadata.deletionTimestamp) return { state: "Terminating", tone: "warn" };
  const of = (ready: number, wanted: number) => ({ state: `${ready}/${wanted}`, tone: ready < wanted ? ("warn" as const) : ("" as const) });
  switch (kind) {
    case "Deployment":
    case "ReplicaSet":
    case "StatefulSet":
      return of(count(field(status, "readyReplicas")), typeof field(spec, "replicas") === "number" ? count(field(spec, "replicas")) : 1);
    case "DaemonSet":
      return of(count(field(status, "numberReady")), count(field(status, "desiredNumberScheduled")));
    case "Job": {
      const failed = list(field(status, "conditions")).some(({ type, status: is }) => type === "Failed" && is === "True");
      return failed ? { state: "Failed", tone: "bad" } : { state: count(field(status, "succeeded")) ? "Complete" : "Running", tone: "" };
    }
    case "PersistentVolumeClaim": {
      const phase = text(field(status, "phase"));
      return { state: phase, tone: tone(phase) };
    }
    default:
      return { state: "", tone: "" };
  }
}

function tone(word: string): MapNode["tone"] {
  const found = wordTone(word);
  return found === "bad" || found === "warn" ? found : "";
}

/** What a pod's template refers to: kind, and name. */
function references(spec: unknown): [string, string][] {
  const found: [string, unknown][] = [];
  for (const volume of list(field(spec, "volumes"))) {
    found.push(["ConfigMap", field(volume, "configMap", "name")], ["Secret", field(volume, "secret", "secretName")], ["PersistentVolumeClaim", field(volume, "persistentVolumeClaim", "claimName")]);
    for (const source of list(field(volume, "projected", "sources"))) found.push(["ConfigMap", field(source, "configMap", "name")], ["Secret", field(source, "secret", "name")]);
  }
  for (const container of [...list(field(spec, "initContainers")), ...list(field(spec, "containers"))]) {
    for (const from of list(field(container, "envFrom"))) found.push(["ConfigMap", field(from, "configMapRef", "name")], ["Secret", field(from, "secretRef", "name")]);
    for (const one of list(field(container, "env"))) found.push(["ConfigMap", field(one, "valueFrom", "configMapKeyRef", "name")], ["Secret", field(one, "valueFrom", "secretKeyRef", "name")]);
  }
  return found.flatMap(([kind, name]) => (text(name) ? [[kind, text(name)] as [string, string]] : []));
}

const PATHS: Record<string, string> = { ConfigMap: "configmaps", Secret: "secrets", PersistentVolumeClaim: "persistentvolumeclaims", Service: "services" };

export function namespaceMap(objects: MapObject[], pods: MapPod[], eachPod: boolean): NamespaceMap {
  const nodes: MapNode[] = [];
  const edges = new Map<string, MapEdge>();
  const at = new Map<string, number>();
  const add = (node: MapNode): number => {
    const known = at.get(node.id);
    if (known !== undefined) return known;
    at.set(node.id, nodes.length);
    return nodes.push(node) - 1;
  };
  const join = (from: number, to: number, how: string) => {
    if (from !== to) edges.set(`${from} ${to} ${how}`, { from, to, how });
  };
  /** A thing that is only named: it is drawn as what it is said to be. */
  const named = (kind: string, name: string): number => at.get(`${kind}/${name}`) ?? add({ id: `${kind}/${name}`, kind, path: PATHS[kind] ?? null, name, state: "", tone: "faint" });

  // What a rollout has left behind is history, and nothing hangs on it.
  const present = objects.filter(({ kind, spec, status, metadata }) => !(kind === "ReplicaSet" && metadata.ownerReferences?.length && field(spec, "replicas") === 0 && !count(field(status, "replicas"))));
  const byUid = new Map<string, number>();
  for (const one of present) {
    const { kind, path, metadata } = one;
    const index = add({ id: `${kind}/${metadata.name}`, kind, path, name: metadata.name, ...state(one) });
    if (metadata.uid) byUid.set(metadata.uid, index);
  }
  for (const { kind, metadata } of present) {
    const own = at.get(`${kind}/${metadata.name}`) as number;
    for (const { uid } of metadata.ownerReferences ?? []) {
      const owner = byUid.get(uid);
      if (owner !== undefined) join(owner, own, "owns");
    }
  }

  const workloads = present
    .filter(({ kind, spec }) => WORKLOADS.includes(kind) && says(field(spec, "selector")) > 0)
    .map(({ kind, metadata, spec }) => ({ index: at.get(`${kind}/${metadata.name}`) as number, name: metadata.name, selector: field(spec, "selector") }))
    .sort((a, b) => says(b.selector) - says(a.selector));
  const owned = new Map<string, { owner: number | null; name: string; status: string; pods: MapPod[] }>();
  for (const pod of pods) {
    const owner = workloads.find(({ selector }) => takes(selector, pod.labels));
    const status = isShort(pod.ready) && pod.status === "Running" ? "Not ready" : pod.status;
    const key = `${owner?.index ?? ""} ${status}`;
    const group = owned.get(key);
    if (group) group.pods.push(pod);
    else owned.set(key, { owner: owner?.index ?? null, name: owner?.name ?? "", status, pods: [pod] });
  }
  /** Each pod with the node that stands for it. */
  const standsFor: { pod: MapPod; node: number }[] = [];
  for (const { owner, name, status, pods: group } of owned.values()) {
    const tones = status === "Not ready" ? ("warn" as const) : tone(status);
    const together = !eachPod && group.length >= FEW;
    if (together) {
      const node = add({ id: `Pod/${name}/${status}`, kind: "Pod", path: null, name: name ? t("{count} pods of {name}", { count: group.length, name }) : t("{count} pods without an owner", { count: group.length }), state: status, tone: tones, pods: group.map((pod) => pod.name) });
      if (owner !== null) join(owner, node, "owns");
      group.forEach((pod) => standsFor.push({ pod, node }));
    } else {
      for (const pod of group) {
        const node = add({ id: `Pod/${pod.name}`, kind: "Pod", path: "pods", name: pod.name, state: status, tone: tones });
        if (owner !== null) join(owner, node, "owns");
        standsFor.push({ pod, node });
      }
    }
  }

  const select = (from: number, selector: unknown) => {
    for (const { pod, node } of standsFor) if (!edges.has(`${from} ${node} selects`) && takes(selector, pod.labels)) join(from, node, "selects");
  };
  for (const { kind, metadata, spec } of present) {
    const own = at.get(`${kind}/${metadata.name}`) as number;
    const template = field(spec, "jobTemplate", "spec", "template", "spec") ?? field(spec, "template", "spec");
    // A ReplicaSet and a Job have what their owners have.
    if (template && !metadata.ownerReferences?.length) for (const [to, name] of references(template)) join(own, named(to, name), "uses");
    switch (kind) {
      case "Service":
        if (says(field(spec, "selector"))) select(own, field(spec, "selector"));
        break;
      case "NetworkPolicy":
        // One for all pods says nothing about any of them.
        if (says(field(spec, "podSelector"))) select(own, field(spec, "podSelector"));
        break;
      case "PodDisruptionBudget":
        if (says(field(spec, "selector"))) select(own, field(spec, "selector"));
        break;
      case "Ingress": {
        const backends = list(field(spec, "rules")).flatMap((rule) => list(field(rule, "http", "paths")).map((path) => field(path, "backend")));
        for (const backend of [...backends, field(spec, "defaultBackend"), field(spec, "backend")]) {
          const name = text(field(backend, "service", "name")) || text(field(backend, "serviceName"));
          if (name) join(own, named("Service", name), "routes to");
        }
        for (const tls of list(field(spec, "tls"))) if (text(field(tls, "secretName"))) join(own, named("Secret", text(field(tls, "secretName"))), "uses");
        break;
      }
      case "HorizontalPodAutoscaler": {
        const target = at.get(`${text(field(spec, "scaleTargetRef", "kind"))}/${text(field(spec, "scaleTargetRef", "name"))}`);
        if (target !== undefined) join(own, target, "scales");
        break;
      }
      case "StatefulSet":
        for (const claim of list(field(spec, "volumeClaimTemplates"))) {
          const prefix = `${text(field(claim, "metadata", "name"))}-${metadata.name}-`;
          nodes.forEach((node, index) => {
            if (node.kind === "PersistentVolumeClaim" && node.name.startsWith(prefix) && /^\d+$/.test(node.name.slice(prefix.length))) join(own, index, "uses");
          });
        }
        break;
    }
  }
  return { nodes, edges: [...edges.values()] };
}

/** The nodes that hang together with one, by whichever lines; all where it is not there. */
export function around({ nodes, edges }: NamespaceMap, id: string): Set<number> {
  const start = nodes.findIndex((node) => node.id === id || node.pods?.includes(id.replace(/^Pod\//, "")));
  if (start < 0) return new Set(nodes.keys());
  const near = new Map<number, number[]>();
  for (const { from, to } of edges) {
    near.set(from, [...(near.get(from) ?? []), to]);
    near.set(to, [...(near.get(to) ?? []), from]);
  }
  // What many share (a ConfigMap, a policy) is shown, and leads no further.
  const leads = (index: number) => !["ConfigMap", "Secret", "NetworkPolicy"].includes(nodes[index]?.kind ?? "") || index === start;
  const found = new Set([start]);
  const queue = [start];
  for (let index = queue.pop(); index !== undefined; index = queue.pop()) {
    if (!leads(index)) continue;
    for (const next of near.get(index) ?? []) {
      if (!found.has(next)) {
        found.add(next);
        queue.push(next);
      }
    }
  }
  return found;
}

/** The part of a map that is wanted. */
export function part({ nodes, edges }: NamespaceMap, wanted: Set<number>): NamespaceMap {
  const moved = new Map([...wanted].sort((a, b) => a - b).map((old, index) => [old, index]));
  return {
    nodes: nodes.filter((_, index) => wanted.has(index)),
    edges: edges.flatMap(({ from, to, how }) => (moved.has(from) && moved.has(to) ? [{ from: moved.get(from) as number, to: moved.get(to) as number, how }] : [])),
  };
}

/** For each node the number of the application that it belongs to: what hangs together keeps together. */
export function applications({ nodes, edges }: NamespaceMap): number[] {
  const group = nodes.map((_, index) => index);
  const root = (index: number): number => {
    while (group[index] !== index) {
      group[index] = group[group[index] as number] as number;
      index = group[index] as number;
    }
    return index;
  };
  for (const { from, to, how } of edges) if (how === "owns" || how === "scales") group[root(from)] = root(to);
  const numbers = new Map<number, number>();
  return nodes.map((_, index) => {
    const at = root(index);
    return numbers.get(at) ?? (numbers.set(at, numbers.size), numbers.size - 1);
  });
}
