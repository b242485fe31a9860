// What axe finds serious or critical on a page, by the rules of WCAG 2.2 AA: nothing may be.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"] };
/** What depends on the theme; everything else is the same in both. */
const CONTRAST = { type: "rule", values: ["color-contrast"] };

export async function axe(what, on, runOnly = RULES) {
  if (!(await on.evaluate(() => "axe" in globalThis))) await on.evaluate(AXE);
  const { violations } = await on.evaluate((runOnly) => globalThis.axe.run(document, { runOnly, resultTypes: ["violations"], preload: false }), runOnly);
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => `${what}: ${id}: ${nodes[0].html.slice(0, 160)} ${nodes[0].failureSummary?.slice(0, 200)}`), []);
}

/** Waits until a page has its content, and nothing on it is still to come or to move. */
export async function settled(on) {
  await on.locator("main .page").waitFor();
  // What a change of theme begins is there after a frame.
  await on.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await on.waitForFunction(() => !document.querySelector(".skeleton, .progress") && document.getAnimations().every(({ playState }) => playState !== "running"));
}

/** Looks at the page in the light, and in the dark at what the dark changes. */
export async function axeInBoth(what, on) {
  await settled(on);
  await axe(`light ${what}`, on);
  await on.emulateMedia({ colorScheme: "dark" });
  await settled(on);
  await axe(`dark ${what}`, on, CONTRAST);
  await on.emulateMedia({ colorScheme: "light" });
}
