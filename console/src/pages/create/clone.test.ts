import { expect, test } from "vitest";
import { withoutIdentity } from "./clone";

const YAML = `apiVersion: v1
kind: Service
metadata:
  annotations:
    deployment.kubernetes.io/revision: "2"
    kubectl.kubernetes.io/last-applied-configuration: |
      {"kind":"Service",
      "metadata":{}}
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels:
    app: web
  name: web
  namespace: shop
  ownerReferences:
  - apiVersion: apps/v1
    name: other
    uid: 5f1c
  resourceVersion: "7"
  uid: 5f1c0b8e
spec:
  clusterIP: 10.0.0.1
  clusterIPs:
  - 10.0.0.1
  ports:
  - name: http
    port: 80
  selector:
    app: web
status:
  loadBalancer: {}
`;

test("a copy has another name, and nothing that is the first one's alone", () => {
  expect(withoutIdentity(YAML)).toBe(`apiVersion: v1
kind: Service
metadata:
  labels:
    app: web
  name: web-copy
  namespace: shop
spec:
  ports:
  - name: http
    port: 80
  selector:
    app: web
`);
});

test("annotations of others stay", () => {
  expect(withoutIdentity("metadata:\n  annotations:\n    mine: yes\n    deployment.kubernetes.io/revision: \"2\"\n  name: a\n")).toBe("metadata:\n  annotations:\n    mine: yes\n  name: a-copy\n");
});
