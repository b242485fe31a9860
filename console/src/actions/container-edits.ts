/** What the editor of containers changes in an object: image, environment, requests and limits. */
import { podSpec, type Container, type KubeObject } from "../pages/object/kube";

export interface EnvEdit {
  name: string;
  value: string;
  /** Said instead of a value that comes from elsewhere; such an entry stays as it is. */
  from?: string;
}

export interface ContainerEdit {
  name: string;
  init: boolean;
  image: string;
  env: EnvEdit[];
  /** `requests.cpu`, `limits.memory`… as typed; empty is none. */
  resources: Record<string, string>;
}

export const RESOURCES = ["requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

interface EnvEntry {
  name: string;
  value?: string;
  valueFrom?: Record<string, Record<string, unknown> | undefined>;
}

type Editable = Container & { env?: EnvEntry[] };

/** Where a value comes from, in a few words. */
function source(valueFrom: NonNullable<EnvEntry["valueFrom"]>): string {
  const [kind, of] = Object.entries(valueFrom)[0] ?? [];
  const words: Record<string, string> = { secretKeyRef: "Secret", configMapKeyRef: "ConfigMap", fieldRef: "field", resourceFieldRef: "resource" };
  return `${words[kind ?? ""] ?? kind ?? "elsewhere"} ${[of?.["name"], of?.["key"] ?? of?.["fieldPath"] ?? of?.["resource"]].filter(Boolean).join("/")}`.trim();
}

function editables(object: KubeObject): { container: Editable; init: boolean }[] {
  const spec = podSpec(object);
  return [
    ...(spec?.containers ?? []).map((container) => ({ container: container as Editable, init: false })),
    ...(spec?.initContainers ?? []).map((container) => ({ container: container as Editable, init: true })),
  ];
}

export function readEdits(object: KubeObject): ContainerEdit[] {
  return editables(object).map(({ container, init }) => ({
    name: container.name,
    init,
    image: container.image ?? "",
    env: (container.env ?? []).map(({ name, value, valueFrom }) => ({ name, value: value ?? "", ...(valueFrom ? { from: source(valueFrom) } : {}) })),
    resources: Object.fromEntries(
      RESOURCES.map((path) => {
        const [part, name] = path.split(".") as ["requests" | "limits", string];
        return [path, container.resources?.[part]?.[name] ?? ""];
      }),
    ),
  }));
}

/** The object with the edits in it; what they do not speak of stays. */
export function withEdits(object: KubeObject, edits: ContainerEdit[]): KubeObject {
  const next = structuredClone(object);
  for (const { container, init } of editables(next)) {
    const edit = edits.find((one) => one.name === container.name && one.init === init);
    if (!edit) continue;
    container.image = edit.image.trim();
    const before = new Map((container.env ?? []).map((entry) => [entry.name, entry]));
    const env = edit.env.filter(({ name }) => name.trim()).map(({ name, value, from }): EnvEntry => (from ? (before.get(name) ?? { name }) : { name: name.trim(), value }));
    if (env.length) container.env = env;
    else delete container.env;
    const resources = { ...container.resources } as Record<string, Record<string, string>>;
    for (const path of RESOURCES) {
      const [part, name] = path.split(".") as [string, string];
      const value = edit.resources[path]?.trim() ?? "";
      const own = { ...resources[part] };
      if (value) own[name] = value;
      else delete own[name];
      if (Object.keys(own).length) resources[part] = own;
      else delete resources[part];
    }
    if (Object.keys(resources).length) container.resources = resources;
    else delete container.resources;
  }
  return next;
}
