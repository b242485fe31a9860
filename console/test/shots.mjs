// Pictures of pages, to be looked at: light and dark, in a small and a large window. None are taken unless
// SHOTS names a directory.
import { join } from "node:path";
import { settled } from "./axe.mjs";

export const SHOTS = process.env.SHOTS;

/** Takes the pictures of a page. `open` goes to the page's address. */
export async function shoot(page, name, open) {
  if (!SHOTS) return;
  for (const [width, height] of [[800, 600], [1440, 900]]) {
    for (const colorScheme of ["light", "dark"]) {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme });
      await open();
      await settled(page);
      await page.locator(".graph .wait").waitFor({ state: "detached" }).catch(() => {});
      await page.waitForTimeout(1000);
      await page.screenshot({ path: join(SHOTS, `${name}-${width}-${colorScheme}.png`) });
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1360, height: 820 });
}
