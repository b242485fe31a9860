import { describe, expect, test } from "vitest";
import { OrderedView, RowSet } from "./rows";
import type { Row, ServerMessage, View } from "./protocol";

const want: View = { filter: "", sort: [], only: {}, start: 0, end: 1000 };
const columns = [
  { name: "Name", type: "string", priority: 0 },
  { name: "Restarts", type: "string", priority: 0 },
  { name: "Age", type: "string", priority: 0 },
];

function row(uid: string, restarts = "0", created = "2026-01-01T00:00:00Z", namespace = "a"): Row {
  return { cluster: "", uid, namespace, name: uid, created, labels: {}, cells: [uid, restarts, "5m"] };
}

class Fixture {
  readonly set = new RowSet();
  readonly view: OrderedView;

  constructor(wanted: Partial<View> = {}) {
    this.view = new OrderedView(this.set, { ...want, ...wanted });
  }

  say(message: Record<string, unknown>): this {
    this.view.take(this.set.take({ id: 1, cluster: "eu", ...message } as unknown as ServerMessage));
    return this;
  }

  get names(): string[] {
    return this.view.update().rows.map(({ cluster, name }) => (cluster === "eu" ? name : `${cluster}:${name}`));
  }
}

describe("rows", () => {
  test("a list replaces what was there, once it is complete", () => {
    const rows = new Fixture().say({ type: "columns", columns }).say({ type: "rows", rows: [row("a"), row("b")] });
    rows.say({ type: "synced", count: 2 }).say({ type: "reset" });
    expect(rows.names).toEqual(["a", "b"]);
    rows.say({ type: "rows", rows: [row("b"), row("c")] });
    expect(rows.names).toEqual(["a", "b", "c"]);
    rows.say({ type: "synced", count: 2 });
    expect(rows.names).toEqual(["b", "c"]);
    expect(rows.view.update().synced).toBe(true);
  });

  test("a deletion that nobody knows of is of no matter, and nothing is there twice", () => {
    const rows = new Fixture().say({ type: "rows", rows: [row("a")] });
    rows.say({ type: "changes", applied: [row("a", "1"), row("a", "2")], deleted: ["nobody"] });
    expect(rows.names).toEqual(["a"]);
    expect(rows.set.size).toBe(1);
  });

  test("numbers in names and cells are sorted by their value", () => {
    const rows = new Fixture({ sort: ["Restarts"] }).say({ type: "columns", columns });
    rows.say({ type: "rows", rows: [row("w-10", "3"), row("w-2", "3"), row("w-1", "12 (5m ago)")] });
    expect(rows.names).toEqual(["w-2", "w-10", "w-1"]);
  });

  test("ages go by the time of creation, not by the text of the cell", () => {
    const rows = new Fixture({ sort: ["Age"] }).say({ type: "columns", columns });
    rows.say({ type: "rows", rows: [row("old", "0", "2020-01-01T00:00:00Z"), row("young", "0", "2026-01-01T00:00:00Z")] });
    expect(rows.names).toEqual(["young", "old"]);
  });

  test("another cluster's columns in another order are put in place", () => {
    const rows = new Fixture({ sort: ["Name"] }).say({ type: "columns", columns });
    rows.say({ type: "rows", rows: [row("a", "7")] });
    const turned = [columns[0], { name: "Node", type: "string", priority: 1 }, columns[1]];
    rows.say({ cluster: "us", type: "columns", columns: turned });
    rows.say({ cluster: "us", type: "rows", rows: [{ ...row("b"), cells: ["b", "node-1", "9"] }] });
    expect(rows.set.columns.map(({ name }) => name)).toEqual(["Name", "Restarts", "Age", "Node"]);
    expect(rows.view.update().rows[1]?.cells).toEqual(["b", "9", undefined, "node-1"]);
  });

  test("a cluster whose part ended is said so, and its rows are gone", () => {
    const rows = new Fixture().say({ type: "rows", rows: [row("a")] }).say({ type: "synced", count: 1 });
    rows.say({ cluster: "us", type: "rows", rows: [row("b")] });
    rows.say({ cluster: "us", type: "end", problem: { detail: "you may no longer" } });
    expect(rows.names).toEqual(["a"]);
    expect(rows.view.update().states["us"]).toEqual({ state: "refused", why: "you may no longer" });
    expect(rows.view.update().problem).toBeUndefined();
  });

  test("changes leave the order that sorting anew would give", () => {
    const rows = new Fixture({ sort: ["-Restarts"], filter: "-skip" }).say({ type: "columns", columns });
    let seed = 7;
    const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
    rows.say({ type: "rows", rows: Array.from({ length: 500 }, (_, index) => row(`${index % 7 ? "pod" : "skip"}-${index}`, String(random(20)))) });
    for (let round = 0; round < 200; round++) {
      const applied = Array.from({ length: 1 + random(4) }, () => {
        const index = random(520);
        return row(`${index % 7 ? "pod" : "skip"}-${index}`, String(random(20)));
      });
      rows.say({ type: "changes", applied, deleted: [`pod-${random(520)}`] });
    }
    const incremental = rows.names;
    rows.view.rebuild();
    expect(incremental).toEqual(rows.names);
    expect(new Set(incremental).size).toBe(incremental.length);
    expect(incremental.some((name) => name.startsWith("skip"))).toBe(false);
  });

  test("many changes at once leave it too, and rows that keep their place are exchanged where they are", () => {
    for (const sort of [["-Restarts"], ["Name"]]) {
      const rows = new Fixture({ sort, filter: "-skip" }).say({ type: "columns", columns });
      let seed = 11;
      const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
      const some = (count: number) => Array.from({ length: count }, () => {
        const index = random(900);
        return row(`${index % 7 ? "pod" : "skip"}-${index}`, String(random(20)));
      });
      for (let round = 0; round < 40; round++) {
        rows.say({ type: "changes", applied: some(60), deleted: some(20).map(({ uid }) => uid) });
        const incremental = rows.view.update().rows;
        rows.view.rebuild();
        expect(incremental).toEqual(rows.view.update().rows);
      }
    }
  });

  test("what is out of sight is no news, what is in sight is", () => {
    const rows = new Fixture({ sort: ["Name"], start: 0, end: 10 }).say({ type: "columns", columns });
    rows.say({ type: "rows", rows: Array.from({ length: 100 }, (_, index) => row(`p-${index}`)) }).say({ type: "synced", count: 100 });
    expect(rows.view.news()?.rows).toHaveLength(10);
    expect(rows.view.news()).toBeNull();
    rows.say({ type: "changes", applied: [row("p-50", "9")] });
    expect(rows.view.news()).toBeNull();
    rows.say({ type: "changes", applied: [row("p-5", "9")] });
    expect(rows.view.news()?.rows[5]?.cells[1]).toBe("9");
    rows.say({ type: "changes", deleted: ["p-99"] });
    expect(rows.view.news()?.total).toBe(99);
    rows.say({ type: "state", state: "stale", why: "away" });
    expect(rows.view.news()?.states["eu"]?.state).toBe("stale");
    rows.view.change({ ...want, sort: ["Name"], start: 20, end: 30 });
    expect(rows.view.news()?.rows[0]?.name).toBe("p-20");
  });

  test("only the part that is wanted is told", () => {
    const rows = new Fixture({ start: 10, end: 20 });
    rows.say({ type: "rows", rows: Array.from({ length: 100 }, (_, index) => row(`p-${index}`)) });
    const { start, rows: told, matched } = rows.view.update();
    expect([start, told.length, matched, told[0]?.name]).toEqual([10, 10, 100, "p-10"]);
  });
});
