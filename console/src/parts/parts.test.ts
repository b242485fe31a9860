import { expect, test } from "vitest";
import { score } from "./score";
import { duration } from "./time";
import { isShort, wordTone } from "./tone";

test("an exact name is found before one that begins with it", () => {
  expect(score("pods", "pods")).toBeGreaterThan(score("podtemplates", "pod"));
  expect(score("deployments.apps deploy", "deploy")).toBeGreaterThan(score("undeployed", "deploy"));
  expect(score("deployments", "dpl")).toBeGreaterThan(0);
  expect(score("pods", "x")).toBe(0);
});

test("durations are short", () => {
  expect([1500, 119_000, 125_000, 3_600_000, 200 * 3_600_000].map(duration)).toEqual(["1s", "119s", "2m5s", "60m", "8d8h"]);
});

test("words of Kubernetes have their tone", () => {
  expect(["CrashLoopBackOff", "Running", "Pending", "Completed", "NotReady", "Ready,SchedulingDisabled", "ImagePullBackOff"].map(wordTone)).toEqual(["bad", "ok", "warn", "", "bad", "warn", "bad"]);
  expect([isShort("1/2"), isShort("2/2"), isShort("x")]).toEqual([true, false, false]);
});
