import { expect, test } from "vitest";
import { layout } from "./graph-layout";

test("those that talk stand closer than those that do not", () => {
  const at = layout({ clusters: [0, 0, 0, 0], edges: [{ from: 0, to: 1, weight: 5 }] });
  const distance = (a: number, b: number) => Math.hypot((at[a * 2] ?? 0) - (at[b * 2] ?? 0), (at[a * 2 + 1] ?? 0) - (at[b * 2 + 1] ?? 0));
  expect(distance(0, 1)).toBeLessThan(400);
  for (let a = 0; a < 4; a++) for (let b = 0; b < a; b++) expect(distance(a, b)).toBeGreaterThan(10);
});

test("the same graph is drawn the same way, and every place is a number", () => {
  const input = { clusters: Array.from({ length: 500 }, (_, index) => index % 7), edges: Array.from({ length: 900 }, (_, index) => ({ from: index % 500, to: (index * 31) % 500, weight: 1 })) };
  const [one, other] = [layout(input, 20), layout(input, 20)];
  expect([...one]).toEqual([...other]);
  expect(one.every(Number.isFinite)).toBe(true);
});
