/** The criteria of a group as texts and back: `label app = web`, `namespace prefix shop-`. */
export interface Criterion {
  key: string;
  label?: string;
  op: string;
  value: string;
}

export const KEYS = ["namespace", "name", "image", "node", "service", "label", "namespaceLabel", "address"];
export const OPS = ["=", "!=", "contains", "!contains", "prefix", "!prefix", "regex", "!regex"];

export function criterionText({ key, label, op, value }: Criterion): string {
  return [key, ...(label === undefined ? [] : [label]), op, value].join(" ");
}

/** The criterion of a text as the API tells it; null if it is none. */
export function parseCriterion(text: string): Criterion | null {
  const [key = "", ...rest] = text.split(" ");
  if (!KEYS.includes(key)) return null;
  const label = key === "label" || key === "namespaceLabel" ? rest.shift() : undefined;
  const op = rest.shift() ?? "";
  if (!OPS.includes(op) || label === "") return null;
  return { key, ...(label === undefined ? {} : { label }), op, value: rest.join(" ") };
}
