import { expect, test } from "vitest";
import { readEdits, withEdits } from "./container-edits";

const object = {
  kind: "Deployment",
  metadata: { name: "web", resourceVersion: "7" },
  spec: {
    template: {
      spec: {
        containers: [
          {
            name: "web",
            image: "web:1",
            ports: [{ containerPort: 80 }],
            env: [{ name: "A", value: "1" }, { name: "PASSWORD", valueFrom: { secretKeyRef: { name: "keys", key: "password" } } }],
            resources: { requests: { cpu: "100m", "nvidia.com/gpu": "1" }, limits: { memory: "1Gi" } },
          },
        ],
        initContainers: [{ name: "init", image: "init:1" }],
      },
    },
  },
};

test("what is read and written back unchanged is the same object", () => {
  expect(withEdits(object, readEdits(object))).toEqual(object);
});

test("edits change what they speak of, and nothing else", () => {
  const edits = readEdits(object);
  expect(edits[0]?.env[1]?.from).toBe("Secret keys/password");
  const [web] = edits;
  if (!web) throw new Error("there is one");
  web.image = "web:2";
  web.env = [...web.env.slice(1), { name: "B", value: "2" }, { name: " ", value: "nothing" }];
  web.resources = { ...web.resources, "requests.cpu": "", "limits.memory": "2Gi", "limits.cpu": "1" };
  const next = withEdits(object, edits) as typeof object;
  const [container] = next.spec.template.spec.containers;
  expect(container).toEqual({
    name: "web",
    image: "web:2",
    ports: [{ containerPort: 80 }],
    env: [{ name: "PASSWORD", valueFrom: { secretKeyRef: { name: "keys", key: "password" } } }, { name: "B", value: "2" }],
    resources: { requests: { "nvidia.com/gpu": "1" }, limits: { memory: "2Gi", cpu: "1" } },
  });
  expect(next.spec.template.spec.initContainers).toEqual(object.spec.template.spec.initContainers);
  expect(object.spec.template.spec.containers[0]?.image).toBe("web:1");
});
