// @vitest-environment node
import { beforeAll, describe, expect, test, vi } from "vitest";
import type * as Router from "./router";

let router: typeof Router;
beforeAll(async () => {
  vi.stubGlobal("location", { pathname: "/", search: "" });
  router = await import("./router");
});

describe("addresses", () => {
  test("parts of a path come back as they were", () => {
    const name = "arn:aws:eks:eu/one two%";
    const path = `/c/${router.segment(name)}/pods`;
    expect(router.match("/c/:clusters/:kind", path)).toEqual({ clusters: name, kind: "pods" });
    expect(path).not.toContain("eu/one");
  });
  test("a path of another form does not match", () => {
    expect(router.match("/c/:clusters/:kind", "/c/a")).toBeNull();
    expect(router.match("/c/:clusters/:kind", "/c/%E0%A4%A/pods")).toBeNull();
  });
  test("a query stays readable", () => {
    expect(router.href("/events", { clusters: "eu,us", q: null, ns: "a&b" })).toBe("/events?clusters=eu,us&ns=a%26b");
  });
});
