import { expect, test } from "vitest";
import { contexts } from "./kubeconfig";

test("the contexts of a kubeconfig are found, not the names of its clusters and users", () => {
  const text = `apiVersion: v1
kind: Config
clusters:
- cluster:
    server: https://10.0.0.1
  name: a-cluster
contexts:
- context:
    cluster: a-cluster
    user: ann
    namespace: name
  name: first
- name: "second: one"
  context: {cluster: a-cluster, user: ann}
current-context: first
users:
- name: ann
  user:
    token: secret
`;
  expect(contexts(text)).toEqual(["first", "second: one"]);
});

test("indented lists and JSON are read, too", () => {
  expect(contexts("contexts:\n  - context:\n      name: inner\n    name: outer\n")).toEqual(["outer"]);
  expect(contexts('{"contexts":[{"name":"x","context":{}}]}')).toEqual(["x"]);
  expect(contexts("nothing: here")).toEqual([]);
});
