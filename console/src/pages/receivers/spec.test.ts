import { expect, test } from "vitest";
import { placeOf, specOf } from "./spec";

test("secrets go beside the spec, and what is left empty stays as it is", () => {
  expect(specOf("slack", { url: "https://hooks", channel: "" }, {}, false)).toEqual({ spec: { disabled: false, slack: {} }, secret: { url: "https://hooks" } });
  const before = { slack: { channel: "#a" }, secret: "kept", comment: "on call" };
  expect(specOf("slack", { url: "", channel: "#b" }, before, true)).toEqual({ spec: { comment: "on call", secret: "kept", disabled: true, slack: { channel: "#b" } } });
});

test("another type keeps nothing that was the old one's, and fields that are not asked for stay", () => {
  expect(specOf("webhook", { url: "https://x" }, { slack: {}, secret: "of slack" }, false)).toEqual({ spec: { disabled: false, webhook: { url: "https://x" } } });
  expect(specOf("syslog", { address: "a:1" }, { syslog: { address: "b:1", facility: 10 } }, false).spec["syslog"]).toEqual({ address: "a:1", transport: "tls", facility: 10 });
  expect(specOf("email", { server: "m:25", from: "a@b", to: "x@y, z@y" }, {}, false).spec["email"]).toEqual({ server: "m:25", security: "starttls", from: "a@b", to: ["x@y", "z@y"] });
});

test("a place is told without what is secret", () => {
  expect(placeOf({ syslog: { address: "logs:514" } })).toBe("logs:514");
  expect(placeOf({ slack: {} })).toBe("");
});
