/** The parts of a Kubernetes object that the pages read; everything may be missing. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata?: {
    name?: string;
    namespace?: string;
    uid?: string;
    resourceVersion?: string;
    creationTimestamp?: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: string[];
    ownerReferences?: { apiVersion: string; kind: string; name: string; controller?: boolean }[];
  };
  spec?: Record<string, unknown>;
  status?: Record<string, unknown>;
  data?: Record<string, string>;
  stringData?: Record<string, string>;
  [part: string]: unknown;
}

export interface Container {
  name: string;
  image?: string;
  command?: string[];
  args?: string[];
  ports?: { containerPort: number; protocol?: string; name?: string }[];
  resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
}

export interface ContainerStatus {
  name: string;
  ready?: boolean;
  restartCount?: number;
  image?: string;
  state?: Record<string, { reason?: string; message?: string; startedAt?: string; exitCode?: number; finishedAt?: string }>;
  lastState?: Record<string, { reason?: string; exitCode?: number; finishedAt?: string }>;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

interface PodSpec {
  containers?: Container[];
  initContainers?: Container[];
  ephemeralContainers?: Container[];
  nodeName?: string;
  serviceAccountName?: string;
}

/** The pod's spec: of a pod its own, of a workload its template's. */
export function podSpec(object: KubeObject): PodSpec | null {
  if (object.kind === "Pod") return (object.spec ?? {}) as PodSpec;
  const spec = object.spec as { template?: { spec?: PodSpec }; jobTemplate?: { spec?: { template?: { spec?: PodSpec } } } } | undefined;
  return spec?.template?.spec ?? spec?.jobTemplate?.spec?.template?.spec ?? null;
}

export function containersOf(object: KubeObject): { container: Container; init: boolean }[] {
  const spec = podSpec(object);
  return [
    ...(spec?.initContainers ?? []).map((container) => ({ container, init: true })),
    ...(spec?.containers ?? []).map((container) => ({ container, init: false })),
    ...(spec?.ephemeralContainers ?? []).map((container) => ({ container, init: false })),
  ];
}

export function containerStatus(object: KubeObject, name: string): ContainerStatus | undefined {
  const status = object.status as Record<string, ContainerStatus[] | undefined> | undefined;
  for (const list of ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]) {
    const found = status?.[list]?.find((one) => one.name === name);
    if (found) return found;
  }
  return undefined;
}

export function conditionsOf(object: KubeObject): Condition[] {
  const conditions = object.status?.["conditions"];
  return Array.isArray(conditions) ? (conditions as Condition[]).filter((one) => typeof one?.type === "string") : [];
}

/** Conditions of which True is bad news. */
const BAD_WHEN_TRUE = /pressure|unavailable|failed|failure|stalled|degraded|deadlock|readonly|conflict|dangling/i;

export function conditionTone({ type, status }: Condition): "ok" | "bad" | "" {
  if (status === "Unknown") return "bad";
  const good = BAD_WHEN_TRUE.test(type) ? status === "False" : status === "True";
  return good ? "ok" : "bad";
}

/** The label selector of a workload or Service, as a text. */
export function selectorOf(object: KubeObject): string | null {
  const selector = object.spec?.["selector"] as { matchLabels?: Record<string, string>; matchExpressions?: unknown[] } | Record<string, string> | undefined;
  if (!selector) return null;
  const labels = "matchLabels" in selector || "matchExpressions" in selector ? (selector as { matchLabels?: Record<string, string> }).matchLabels : (selector as Record<string, string>);
  if (!labels) return null;
  const pairs = Object.entries(labels).filter(([, value]) => typeof value === "string");
  return pairs.length ? pairs.map(([key, value]) => `${key}=${value}`).join(",") : null;
}
