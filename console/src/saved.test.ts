import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { pathname: "/", search: "" });
const { readSaved } = await import("./saved");

test("what is stored becomes links: only paths of this page are taken", () => {
  const good = { title: "web", href: "/c/eu/pods?q=web" };
  expect(readSaved(JSON.stringify([good, { title: "x", href: "javascript:alert(1)" }, { title: "y", href: "//evil.example" }, { title: "z", href: "https://evil.example/" }, { href: "/" }, null, 7]))).toEqual([good]);
});

test("what cannot be read is nothing", () => {
  for (const text of [null, "", "{", "{}", "null"]) expect(readSaved(text)).toEqual([]);
});
