import { expect, test } from "vitest";
import { merge } from "./merge";

const base = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\n";

test("changes in different places are both there", () => {
  const own = base.replace("d: 4", "d: 40");
  const newest = base.replace("a: 1", "a: 10\nnew: yes");
  expect(merge(base, own, newest)).toEqual({ text: "a: 10\nnew: yes\nb: 2\nc: 3\nd: 40\ne: 5\n", both: 0 });
});

test("what one removed stays removed, what others removed is not brought back", () => {
  const own = base.replace("e: 5\n", "");
  const newest = base.replace("b: 2\n", "");
  expect(merge(base, own, newest)).toEqual({ text: "a: 1\nc: 3\nd: 4\n", both: 0 });
});

test("a place that both changed is told", () => {
  const { text, both } = merge(base, base.replace("c: 3", "c: mine"), base.replace("c: 3", "c: theirs"));
  expect(both).toBe(1);
  expect(text).toBe(base.replace("c: 3", "c: mine"));
});

test("nothing of one's own gives the newest", () => {
  const newest = base.replace("a: 1", "a: 7").replace("e: 5", "e: 8");
  expect(merge(base, base, newest)).toEqual({ text: newest, both: 0 });
});
