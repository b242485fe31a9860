import { expect, test } from "vitest";
import { assignSlots } from "./slots";

test("a row that stays keeps its element wherever it moves", () => {
  const before = assignSlots(new Map(), ["b", "c", "d"]);
  const after = assignSlots(before, ["a", "b", "c"]);
  expect(after.get("b")).toBe(before.get("b"));
  expect(after.get("c")).toBe(before.get("c"));
  // The element of the row that left is used again.
  expect(after.get("a")).toBe(before.get("d"));
});

test("elements are as many as rows, each with one", () => {
  let slots = new Map<string, number>();
  for (let start = 0; start < 50; start += 7) {
    const rows = Array.from({ length: 10 }, (_, at) => `row ${start + at}`);
    slots = assignSlots(slots, rows);
    expect([...slots.values()].sort((a, b) => a - b)).toEqual(rows.map((_, at) => at));
  }
});
