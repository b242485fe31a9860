import { expect, test } from "vitest";
import { byClusters } from "./by-clusters";

test("rights that are the same in several clusters are one line", () => {
  const rights = [
    { cluster: "eu", resource: "pods", everywhere: ["get"], somewhere: [] },
    { cluster: "us", resource: "pods", everywhere: ["get"] },
    { cluster: "us", resource: "secrets", everywhere: ["get"] },
    { cluster: "-", resource: "pods", everywhere: ["list"] },
  ];
  expect(byClusters(rights).map(({ clusters, resource }) => `${resource} ${clusters.join("+")}`)).toEqual(["pods eu+us", "secrets us", "pods -"]);
});
