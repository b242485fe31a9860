import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { pathname: "/", search: "", origin: "http://console" });
const { firstSubscription, tableSubscription } = await import("./table");

test("what is begun early is what the table will ask for", () => {
  const query = new URLSearchParams("ns=shop,pay&labels=app%3Dweb&q=x");
  expect(firstSubscription("/c/eu,us/pods", query)).toEqual(tableSubscription(["eu", "us"], "pods", query));
  expect(tableSubscription(["eu"], "pods", query)).toEqual({ topic: "rows", clusters: ["eu"], kind: "pods", namespaces: ["shop", "pay"], labels: "app=web" });
  expect(tableSubscription(["eu"], "pods", new URLSearchParams())).toEqual({ topic: "rows", clusters: ["eu"], kind: "pods" });
});

test("nothing is begun where the address does not say it", () => {
  for (const path of ["/", "/c/*/pods", "/c/eu", "/now", "/c/eu/pods/shop/web"]) expect(firstSubscription(path, new URLSearchParams())).toBeNull();
});
