import { expect, test } from "vitest";
import { linePath, niceTop } from "./chart-path";

test("the top of a chart is a round number above its values", () => {
  expect([0, 0.37, 1, 3, 99, 101].map(niceTop)).toEqual([1, 0.5, 1, 5, 100, 200]);
});

test("a line has a gap where nothing was measured", () => {
  expect(linePath([[0, 0], [10, 5], [50, 10]], 0, 100, 10, 200, 100, 20)).toBe("M0.0 100.0L20.0 50.0M100.0 0.0");
  expect(linePath([], 0, 100, 10, 200, 100, 20)).toBe("");
});
