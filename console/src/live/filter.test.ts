import { describe, expect, test } from "vitest";
import { compileFilter } from "./filter";
import type { Column, Row } from "./protocol";

const columns: Column[] = [
  { name: "Name", type: "string", priority: 0 },
  { name: "Status", type: "string", priority: 0 },
  { name: "Restarts", type: "string", priority: 0 },
];

function row(name: string, status = "Running", labels: Record<string, string> = {}): Row {
  return { cluster: "eu", uid: name, namespace: "shop", name, created: "2026-01-01T00:00:00Z", labels, cells: [name, status, "0"] };
}

function kept(filter: string, rows: Row[]): string[] {
  const { test } = compileFilter(filter, columns);
  return rows.filter((one) => !test || test(one)).map(({ name }) => name);
}

describe("a filter", () => {
  const rows = [row("web-1"), row("web-2", "CrashLoopBackOff"), row("db-1", "Running", { app: "db", tier: "back" }), row("cache", "Pending", { app: "cache" })];

  test("wants every word, anywhere, in any case", () => {
    expect(kept("WEB run", rows)).toEqual(["web-1"]);
    expect(kept("shop eu", rows)).toHaveLength(4);
  });
  test("does not want what is negated", () => {
    expect(kept("-web", rows)).toEqual(["db-1", "cache"]);
    expect(kept("!running !pending", rows)).toEqual(["web-2"]);
  });
  test("looks into one column", () => {
    expect(kept("status:crash", rows)).toEqual(["web-2"]);
    expect(kept("-status:crash", rows)).toEqual(["web-1", "db-1", "cache"]);
    expect(kept("ns:shop name:db", rows)).toEqual(["db-1"]);
  });
  test("looks at labels", () => {
    expect(kept("app=db", rows)).toEqual(["db-1"]);
    expect(kept("app!=db", rows)).toEqual(["web-1", "web-2", "cache"]);
    expect(kept("app=", rows)).toEqual(["db-1", "cache"]);
  });
  test("takes regular expressions, and says which cannot be read", () => {
    expect(kept("/^web-[0-9]$/", rows)).toEqual(["web-1", "web-2"]);
    expect(compileFilter("/(/", columns).problem).toBe("/(/");
  });
  test("keeps quoted words together, and a word with an unknown column is a word", () => {
    expect(kept('"web-1"', rows)).toEqual(["web-1"]);
    expect(kept("nosuch:web", rows)).toEqual([]);
  });
});
