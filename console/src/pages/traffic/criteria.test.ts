import { expect, test } from "vitest";
import { criterionText, parseCriterion } from "./criteria";

test("a criterion is read as it was told, spaces in its value included", () => {
  for (const text of ["namespace = shop", "label app.kubernetes.io/name != web", "name regex ^a b$", "namespaceLabel team prefix pay", "address = 10.0.0.0/8", "label app = "]) {
    const read = parseCriterion(text);
    expect(read && criterionText(read)).toBe(text);
  }
});

test("what is no criterion is not guessed at", () => {
  expect(["", "colour = red", "namespace is shop", "label = web"].map(parseCriterion)).toEqual([null, null, null, null]);
});
