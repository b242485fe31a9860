import { expect, test } from "vitest";
import { yamlOf } from "./yaml-of";

test("values are shown as YAML that means the same", () => {
  expect(yamlOf({ replicas: 3, image: { tag: "1.4", pullPolicy: "Always" }, hosts: ["a.example", { name: "b", port: 80 }], on: "yes", none: null, empty: {}, list: [] })).toBe(
    ['replicas: 3', "image:", '  tag: "1.4"', "  pullPolicy: Always", "hosts:", "  - a.example", "  - name: b", "    port: 80", '"on": "yes"', "none: null", "empty: {}", "list: []"].join("\n"),
  );
});
