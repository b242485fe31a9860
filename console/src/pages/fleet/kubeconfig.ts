/**
 * The names of the contexts in a kubeconfig, to choose from. Not a reader of YAML: the server reads the
 * file; this finds the list that kubectl and everybody else writes.
 */
export function contexts(text: string): string[] {
  const trimmed = text.trim();
  if (trimmed.startsWith("{")) {
    try {
      const config = JSON.parse(trimmed) as { contexts?: { name?: unknown }[] };
      return (config.contexts ?? []).flatMap(({ name }) => (typeof name === "string" ? [name] : []));
    } catch {
      return [];
    }
  }
  const names: string[] = [];
  let inside = false;
  let indent = -1;
  for (const line of text.split(/\r?\n/)) {
    if (/^\S/.test(line) && !line.startsWith("-") && !line.startsWith("#")) {
      inside = /^contexts\s*:/.test(line);
      indent = -1;
      continue;
    }
    if (!inside) continue;
    const item = /^(\s*)-(\s+)/.exec(line);
    // The names of a context's own parts are deeper than the list's items.
    if (item) indent = (item[1] as string).length + 1 + (item[2] as string).length;
    const body = item ? line.slice(item[0].length) : line;
    const at = item ? indent : line.length - line.trimStart().length;
    const name = /^\s*name\s*:\s*(.+?)\s*$/.exec(body);
    if (name && at === indent) names.push(unquoted(name[1] as string));
  }
  return [...new Set(names)];
}

function unquoted(text: string): string {
  const quoted = /^"((?:[^"\\]|\\.)*)"$|^'((?:[^']|'')*)'$/.exec(text);
  if (!quoted) return text.replace(/\s+#.*$/, "");
  return quoted[1] !== undefined ? quoted[1].replace(/\\(.)/g, "$1") : (quoted[2] ?? "").replaceAll("''", "'");
}
