// Fails when a part of the console is larger than it may be, compressed. `npm run build` writes what it
// reads. The limits are kilobytes (1000 bytes) of gzip: what goes over the wire.
import { existsSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMITS = { initial: 60, route: 40, editor: 150, terminal: 105, graph: 60 };

const dist = new URL("../dist/", import.meta.url);
const manifestFile = new URL(".vite/manifest.json", dist);
if (!existsSync(manifestFile)) {
  console.error("budget: there is no dist/; run `npm run build` first");
  process.exit(2);
}
const manifest = JSON.parse(readFileSync(manifestFile));

const sizes = new Map();
function size(file) {
  if (!sizes.has(file)) sizes.set(file, gzipSync(readFileSync(new URL(file, dist)), { level: 9 }).length);
  return sizes.get(file);
}

/** Every script that loading `key` fetches at once, without those that are there already. */
function closure(key, without = new Set()) {
  const found = new Set();
  const walk = (one) => {
    const chunk = manifest[one];
    if (!chunk || found.has(chunk.file) || without.has(chunk.file)) return;
    found.add(chunk.file);
    for (const next of chunk.imports ?? []) walk(next);
  };
  walk(key);
  return found;
}

const sum = (files) => [...files].reduce((total, file) => total + size(file), 0);

const entry = Object.keys(manifest).find((key) => manifest[key].isEntry);
const initial = closure(entry);
const parts = [["initial", "initial", sum(initial)]];
for (const [key, chunk] of Object.entries(manifest)) {
  if (!chunk.isDynamicEntry) continue;
  const name = chunk.src ?? key;
  const kind = /editor/.test(name) ? "editor" : /terminal/.test(name) ? "terminal" : /graph/.test(name) ? "graph" : "route";
  parts.push([name.replace(/^src\//, ""), kind, sum(closure(key, initial))]);
}

let failed = false;
for (const [name, kind, bytes] of parts) {
  const limit = LIMITS[kind] * 1000;
  const over = bytes > limit;
  failed ||= over;
  console.log(`${over ? "OVER " : "     "}${(bytes / 1000).toFixed(1).padStart(6)} kB of ${String(LIMITS[kind]).padStart(3)}  ${name}`);
}
if (failed) {
  console.error("budget: a part is larger than it may be; find what it imports, or import it when it is opened");
  process.exit(1);
}
