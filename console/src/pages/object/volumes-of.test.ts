import { expect, test, vi } from "vitest";

vi.stubGlobal("location", { pathname: "/", search: "" });
const { volumesOf } = await import("./volumes-of");

test("volumes say what they are of, and where they are mounted", () => {
  const object = {
    kind: "Pod",
    spec: {
      volumes: [{ name: "data", persistentVolumeClaim: { claimName: "data-0" } }, { name: "tmp", emptyDir: {} }, { name: "logs", hostPath: { path: "/var/log" } }],
      containers: [{ name: "db", volumeMounts: [{ name: "data", mountPath: "/var/lib/db" }, { name: "logs", mountPath: "/log", readOnly: true }] }],
    },
  };
  const [data, tmp, logs] = volumesOf({ cluster: "eu", namespace: "shop" }, object);
  expect(data).toMatchObject({ type: "persistentVolumeClaim", source: "data-0", href: "/c/eu/persistentvolumeclaims/shop/data-0", mounts: [{ container: "db", path: "/var/lib/db", readOnly: false }] });
  expect(tmp).toMatchObject({ type: "emptyDir", source: "", mounts: [] });
  expect(logs).toMatchObject({ source: "/var/log", href: null, mounts: [{ readOnly: true }] });
});
