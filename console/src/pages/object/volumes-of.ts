/** Reads the volumes of a pod's spec, with their mounts. */
import { object as objectHref, type ObjectPlace } from "../../places";
import { containersOf, podSpec, type KubeObject } from "./kube";

interface Volume {
  name: string;
  [source: string]: unknown;
}

interface Mount {
  container: string;
  path: string;
  readOnly: boolean;
  subPath?: string;
}

export interface VolumeLine {
  name: string;
  type: string;
  /** What it is of: a claim, a Secret, a path. */
  source: string;
  href: string | null;
  mounts: Mount[];
}

/** Kinds that a volume names, and the field that has the name. */
const NAMED: Record<string, [string, string]> = {
  persistentVolumeClaim: ["persistentvolumeclaims", "claimName"],
  configMap: ["configmaps", "name"],
  secret: ["secrets", "secretName"],
};

export function volumesOf(place: Pick<ObjectPlace, "cluster" | "namespace">, object: KubeObject): VolumeLine[] {
  const volumes = ((podSpec(object) as { volumes?: Volume[] } | null)?.volumes ?? []).filter(({ name }) => name);
  const mounts = containersOf(object).flatMap(({ container }) => {
    const own = (container as { volumeMounts?: { name: string; mountPath: string; readOnly?: boolean; subPath?: string }[] }).volumeMounts ?? [];
    return own.map(({ name, mountPath, readOnly, subPath }) => ({ volume: name, container: container.name, path: mountPath, readOnly: readOnly === true, ...(subPath ? { subPath } : {}) }));
  });
  return volumes.map((volume) => {
    const type = Object.keys(volume).find((key) => key !== "name") ?? "emptyDir";
    const of = (volume[type] ?? {}) as Record<string, unknown>;
    const named = NAMED[type];
    const name = named ? String(of[named[1]] ?? "") : "";
    return {
      name: volume.name,
      type,
      source: name || String(of["path"] ?? of["driver"] ?? of["server"] ?? of["medium"] ?? ""),
      href: named && name ? objectHref({ cluster: place.cluster, kind: named[0], namespace: place.namespace, name }) : null,
      mounts: mounts.filter((mount) => mount.volume === volume.name),
    };
  });
}
