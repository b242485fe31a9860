import { expect, test } from "vitest";
import { parseEvents } from "./events";

test("whole events are read, and what is cut off waits for the rest", () => {
  const { events, rest } = parseEvents('event: pod\ndata: {"name":"a"}\n\n: still here\n\nevent: done\r\ndata: {"dra');
  expect(events).toEqual([{ event: "pod", data: { name: "a" } }]);
  expect(parseEvents(`${rest}ined":true}\n\n`).events).toEqual([{ event: "done", data: { drained: true } }]);
});
