/** Plain values as YAML, to be read: what would be ambiguous is quoted. */
export function yamlOf(value: unknown, depth = 0): string {
  const pad = "  ".repeat(depth);
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return value.map((item) => (isScalar(item) ? `${pad}- ${yamlOf(item)}` : `${pad}- ${yamlOf(item, depth + 1).trimStart()}`)).join("\n");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return "{}";
    return entries.map(([key, item]) => `${pad}${word(key)}:${isScalar(item) ? ` ${yamlOf(item)}` : `\n${yamlOf(item, depth + 1)}`}`).join("\n");
  }
  return typeof value === "string" ? word(value) : String(value);
}

const isScalar = (value: unknown): boolean => value === null || typeof value !== "object" || Object.keys(value).length === 0;

function word(text: string): string {
  return /^[A-Za-z_./][\w./@+-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text) ? text : JSON.stringify(text);
}
