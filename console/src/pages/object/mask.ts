/** The YAML of a Secret without its values: `data` and `stringData` have stars, keys and sizes stay. */
export function masked(yaml: string): string {
  let inside = false;
  let deeper = -1;
  return yaml
    .split("\n")
    .flatMap((line) => {
      if (/^\S/.test(line)) {
        inside = /^(data|stringData):/.test(line);
        deeper = -1;
        // In one line: {key: value}.
        return [inside ? line.replace(/:\s*\{.+\}\s*$/, ": { … }") : hiddenAnnotation(line)];
      }
      if (!inside) return [hiddenAnnotation(line)];
      const entry = /^(\s+)((?:"[^"]*"|'[^']*'|[^\s:]+)):(.*)$/.exec(line);
      const indent = line.length - line.trimStart().length;
      // What is deeper than the keys goes on with a value.
      if (deeper >= 0 && indent > deeper) return [];
      if (!entry) return [];
      deeper = indent;
      return [`${entry[1] as string}${entry[2] as string}: "••••••"`];
    })
    .join("\n");
}

/** kubectl keeps what was applied, values and all, in an annotation. */
function hiddenAnnotation(line: string): string {
  return line.replace(/^(\s*kubectl\.kubernetes\.io\/last-applied-configuration:).*$/, '$1 "••••••"').replace(/^(\s*)(\{"apiVersion".*"kind":"Secret".*)$/, '$1••••••');
}
