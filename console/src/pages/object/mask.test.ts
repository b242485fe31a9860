import { expect, test } from "vitest";
import { masked } from "./mask";

test("no value of a Secret is left, every key is", () => {
  const yaml = `apiVersion: v1
data:
  password: aHVudGVyMg==
  "odd key": c2Vjb25k
  long: |
    bGluZQ==
    bW9yZQ==
  folded: >-
    Zm9sZGVk
kind: Secret
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"v1","data":{"password":"aHVudGVyMg=="},"kind":"Secret"}
  name: keep-me
stringData:
  plain: hunter2
type: Opaque
`;
  const shown = masked(yaml);
  for (const value of ["aHVudGVyMg", "c2Vjb25k", "bGluZQ", "bW9yZQ", "Zm9sZGVk", "hunter2"]) expect(shown).not.toContain(value);
  for (const key of ["password:", '"odd key":', "long:", "folded:", "plain:", "name: keep-me", "type: Opaque"]) expect(shown).toContain(key);
  expect(masked("data: {a: c2VjcmV0}\nkind: Secret")).not.toContain("c2VjcmV0");
});
