// A lock that is really held, in the very process whose page is looked at: Now names who waits and who holds.
//
// API is where that process serves, TOKEN its owner's; whoever connects to HOLD has a lock held until the
// connection ends. `cargo nextest run -p fairlead --test console` starts all of it.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import { axe } from "./axe.mjs";
import { Browser, until } from "./fairlead.mjs";
import { Front } from "./front.mjs";

const browser = new Browser();
let front;
let origin;
let page;

before(async () => {
  await browser.start();
  origin = `http://${process.env.API}`;
  if (process.env.CONSOLE_DIST) {
    front = await new Front(process.env.CONSOLE_DIST).start();
    front.behind(Number(process.env.API.split(":").at(-1)));
    origin = `http://127.0.0.1:${front.port}`;
  }
  const context = await browser.session({ origin });
  page = await context.newPage();
  // The users are read in a moment.
  const link = await until("a link", async () => {
    const answer = await fetch(`http://${process.env.API}/api/v1/login-links`, { method: "POST", headers: { authorization: `Bearer ${process.env.TOKEN}` } });
    return answer.ok ? answer.json() : null;
  });
  await page.goto(origin + link.path);
  await page.locator(".frame").waitFor();
}, { timeout: 60_000 });

after(async () => {
  await browser.stop();
  front?.stop();
});

describe("a held lock", () => {
  test("Now names who waits and who holds, and forgets them when it is let go", async () => {
    await page.goto(`${origin}/now`);
    await page.getByRole("cell", { name: "inflight" }).waitFor();
    const chains = page.getByRole("region", { name: "Who waits for whom" });
    assert.equal(await chains.count(), 0, "nobody waits yet");
    const [host, port] = process.env.HOLD.split(":");
    const hold = net.connect(Number(port), host);
    const begun = Date.now();
    const locks = page.getByRole("region", { name: "Locks that are waited for" });
    await chains.getByText("waits for lock stuck cache, held by").waitFor();
    await locks.getByText("stuck cache").waitFor();
    console.log(`# waiter and holder were named ${Date.now() - begun} ms after the lock was taken`);
    assert.match(await chains.innerText(), /lookup pod web-0[\s\S]*refresh the cache/);
    // By their places in the code, of the lock itself.
    const places = (await locks.innerText()).match(/held_lock\/mod\.rs:\d+/g) ?? [];
    assert.ok(new Set(places).size === 2, `holder and waiter: ${places}`);
    await axe("a held lock", page);
    hold.destroy();
    await chains.waitFor({ state: "detached" });
    await locks.waitFor({ state: "detached" });
  });

  test("without a cluster, pages of clusters say what to do instead of waiting", async () => {
    for (const path of ["/events", "/c/*/pods", "/map"]) {
      await page.goto(origin + path);
      await page.getByRole("heading", { name: "There is no cluster" }).waitFor();
      await page.locator(".empty").getByRole("link", { name: "Fleet" }).waitFor();
      assert.equal(await page.locator(".skeleton").count(), 0, path);
    }
  });

  test("no page complained", () => assert.deepEqual(browser.complaints, []));
});
