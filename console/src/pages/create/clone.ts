/**
 * Takes out of an object's YAML what is its own alone, so that a copy can be made of it: its status, its
 * identity, what the API server gave it. The text is that of the API: two spaces, sorted by nobody.
 */

/** Fields of `metadata` that the API server writes. */
const METADATA = ["uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "ownerReferences", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"];
/** Fields of `spec` that are given to one object alone: addresses, volumes, nodes, claims. */
const SPEC = ["clusterIP", "clusterIPs", "nodeName", "volumeName", "healthCheckNodePort", "claimRef"];
const ANNOTATIONS = ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

export function withoutIdentity(yaml: string): string {
  const kept: string[] = [];
  /** The keys that lead to the line at hand, by their depth. */
  let [section, within] = ["", ""];
  /** While set, lines deeper than this belong to a field that goes. */
  let dropping: number | null = null;
  for (const line of yaml.split("\n")) {
    const found = /^( *)(?:"([^"]+)"|'([^']+)'|([^\s:#'"-][^:]*)):(?=\s|$)/.exec(line);
    const depth = /^ */.exec(line)?.[0].length ?? 0;
    if (dropping !== null) {
      const item = depth === dropping && /^ *-(\s|$)/.test(line);
      if (line.trim() === "" || depth > dropping || item) continue;
      dropping = null;
    }
    if (found) {
      const key = found[2] ?? found[3] ?? found[4] ?? "";
      if (depth === 0) [section, within] = [key, ""];
      else if (depth === 2) within = key;
      const goes =
        (depth === 0 && key === "status") ||
        (depth === 2 && section === "metadata" && METADATA.includes(key)) ||
        (depth === 2 && section === "spec" && SPEC.includes(key)) ||
        (depth === 4 && section === "metadata" && within === "annotations" && ANNOTATIONS.includes(key));
      if (goes) {
        dropping = depth;
        continue;
      }
      if (depth === 2 && section === "metadata" && key === "name") {
        kept.push(line.replace(/(name:\s*"?)([^"\s]*)/, "$1$2-copy"));
        continue;
      }
    }
    kept.push(line);
  }
  // Annotations that were all the API server's leave their title behind.
  return `${kept.join("\n").replace(/^ {2}annotations:\n(?! {4})/m, "").trimEnd()}\n`;
}
