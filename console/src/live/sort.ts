/** The order of rows: any two differ, so that a place in the order is found by search. */
import { reader } from "./filter";
import type { Column, Row } from "./protocol";

export type Compare = (a: Row, b: Row) => number;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Compares text; numbers in it by their value: `web-2` before `web-10`. */
function byText(a: string, b: string): number {
  if (a === b) return 0;
  return collator.compare(a, b) || (a < b ? -1 : 1);
}

function rank(row: Row): string {
  return `${row.cluster}\u0000${row.uid}`;
}

function tie(a: Row, b: Row): number {
  const [left, right] = [rank(a), rank(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** `3`, `3 (5m ago)`, `12Gi`, `250m`, `2/3`, `41%`: what a cell begins with, as a number. */
export function leadingNumber(text: string): number | null {
  const found = /^(-?\d+(?:\.\d+)?)(?:(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P|m)(?![a-z]))?/.exec(text);
  if (!found) return null;
  const scale: Record<string, number> = {
    m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
    Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50,
  };
  return Number(found[1]) * (found[2] ? (scale[found[2]] ?? 1) : 1);
}

/** Whether a column is the age, which is computed from the time of creation. */
export function isAge(column: Column): boolean {
  return column.name === "Age" || column.name === "Created At";
}

function one(key: string, columns: Column[]): Compare | null {
  const backwards = key.startsWith("-");
  const name = backwards ? key.slice(1) : key;
  const turned = (compare: Compare): Compare => (backwards ? (a, b) => compare(b, a) : compare);
  const column = columns.find((one) => one.name.toLowerCase() === name.toLowerCase());
  if (name.toLowerCase() === "age" || (column && isAge(column))) {
    // The youngest has the smallest age.
    return turned((a, b) => {
      const [left, right] = [a.created ?? "", b.created ?? ""];
      return left < right ? 1 : left > right ? -1 : 0;
    });
  }
  const read = reader(name, columns);
  if (!read) return null;
  if (!column || ["name", "namespace", "cluster"].includes(name.toLowerCase())) {
    return turned((a, b) => byText(read(a), read(b)));
  }
  return turned((a, b) => {
    const [left, right] = [read(a), read(b)];
    const [x, y] = [leadingNumber(left), leadingNumber(right)];
    if (x !== null && y !== null && x !== y) return x - y;
    return byText(left, right);
  });
}

/** The order by `keys`, then by namespace and name. */
export function comparison(keys: string[], columns: Column[]): Compare {
  const compares = [...keys, "namespace", "name", "cluster"].flatMap((key) => one(key, columns) ?? []);
  return (a, b) => {
    for (const compare of compares) {
      const order = compare(a, b);
      if (order) return order;
    }
    return tie(a, b);
  };
}

/** The first place in `rows` that is not before `row`. */
export function place(rows: Row[], row: Row, compare: Compare): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(rows[middle] as Row, row) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
