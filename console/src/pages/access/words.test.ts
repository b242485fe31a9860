import { expect, test } from "vitest";
import { words } from "./words";

test("a rule is said in words", () => {
  expect(words({ clusters: ["*"], namespaces: ["shop"], resources: ["*"], verbs: ["get", "list"] })).toBe("get, list everything, in namespace shop of all clusters");
  expect(words({ clusters: ["-"], namespaces: ["*"], resources: ["clusters"], verbs: ["*"] })).toBe("do everything with clusters of the fleet itself");
});
