// What axe finds serious or critical on a page, by the rules of WCAG 2.2 AA: nothing may be.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export async function axe(what, on) {
  await on.evaluate(AXE);
  const { violations } = await on.evaluate(() => globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"] }));
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => `${what}: ${id}: ${nodes[0].html.slice(0, 160)} ${nodes[0].failureSummary?.slice(0, 200)}`), []);
}
