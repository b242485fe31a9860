import { expect, test } from "vitest";
import { cores, memory, quantity } from "./usage";

test("quantities of Kubernetes are numbers", () => {
  expect(["250m", "2", "30Gi", "1e3", "512Ki", "100M", "1500n", "", "many"].map(quantity)).toEqual([0.25, 2, 30 * 2 ** 30, 1000, 512 * 1024, 1e8, 1.5e-6, 0, 0]);
});

test("cores and memory are said shortly", () => {
  expect([cores(250), cores(1500), cores(2000), cores(23_400)]).toEqual(["250m", "1.5", "2", "23"]);
  expect([memory(512), memory(268_435_456), memory(1.5 * 2 ** 30), memory(96_636_764_160)]).toEqual(["512 B", "256 MiB", "1.5 GiB", "90 GiB"]);
});
