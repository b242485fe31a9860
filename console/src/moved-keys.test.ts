import { expect, test } from "vitest";
import { isMovable, meantBy, moveKey, pressedFor, readMoved } from "./moved-keys";

test("a key that was moved is pressed at its new place, and no longer at the old one", () => {
  const all = moveKey("l", "L", {});
  expect(pressedFor("l", all)).toBe("L");
  expect(meantBy("L", all)).toBe("l");
  expect(meantBy("l", all)).not.toBe("l");
  expect(meantBy("y", all)).toBe("y");
  expect(moveKey("l", "l", all)).toEqual({});
});

test("two keys that want the same place change places, so that each keeps a meaning", () => {
  const all = moveKey("j", "k", {});
  expect([meantBy("k", all), meantBy("j", all)]).toEqual(["j", "k"]);
});

test("what is stored is read as far as it can be", () => {
  expect(readMoved(null)).toEqual({});
  expect(readMoved("[1]")).toEqual({});
  expect(readMoved("{")).toEqual({});
  expect(readMoved(JSON.stringify({ j: "n", Escape: "q", k: 1, x: "Enter" }))).toEqual({ j: "n" });
  expect(isMovable("Enter")).toBe(false);
});
