/**
 * The filter of a table, as one types it.
 *
 * Words are all wanted, in any order, in any cell: `web running`. `-word` or `!word` is not wanted;
 * `"two words"` is one; `/^web-\d+/` is a regular expression; `status:crash` looks into one column,
 * `ns:`, `cluster:`, `name:` too; `app=web`, `app!=web` and `app=` (has the label) look at labels.
 */
import type { Column, Row } from "./protocol";

export type Test = (row: Row) => boolean;

export interface Compiled {
  test: Test | null;
  problem?: string;
}

const WORD = /([!-]?)(?:"([^"]*)"?|(\/(?:\\.|[^/\\])+\/)|(\S+))/g;

export function compileFilter(text: string, columns: Column[]): Compiled {
  const tests: Test[] = [];
  let problem: string | undefined;
  for (const [, negated, quoted, regex, word] of text.matchAll(WORD)) {
    const found = quoted !== undefined ? anywhere(quoted) : regex ? pattern(regex.slice(1, -1)) : term(word ?? "", columns);
    if (typeof found === "string") problem ??= found;
    else if (found) tests.push(negated ? (row) => !found(row) : found);
  }
  const test: Test | null = tests.length ? (row) => tests.every((one) => one(row)) : null;
  return problem ? { test, problem } : { test };
}

function pattern(source: string): Test | string {
  try {
    const expression = new RegExp(source, "i");
    return (row) => texts(row).some((text) => expression.test(text));
  } catch {
    return `/${source}/`;
  }
}

function* cellTexts(row: Row): Generator<string> {
  for (const cell of row.cells) {
    if (cell === null || cell === undefined) continue;
    yield typeof cell === "string" ? cell : String(cell);
  }
}

function texts(row: Row): string[] {
  return [row.name, row.namespace ?? "", row.cluster, ...cellTexts(row)];
}

function anywhere(wanted: string): Test | null {
  const word = wanted.toLowerCase();
  if (!word) return null;
  return (row) => {
    if (row.name.toLowerCase().includes(word)) return true;
    if (row.namespace?.toLowerCase().includes(word) || row.cluster.toLowerCase().includes(word)) return true;
    for (const text of cellTexts(row)) if (text.toLowerCase().includes(word)) return true;
    return false;
  };
}

function term(word: string, columns: Column[]): Test | string | null {
  const label = /^([A-Za-z0-9][\w./-]*?)(!?=)=?(.*)$/.exec(word);
  if (label) {
    const [, key, operator, value] = label as unknown as [string, string, string, string];
    if (operator === "!=") return (row) => row.labels[key] !== value;
    return value ? (row) => row.labels[key] === value : (row) => key in row.labels;
  }
  const column = /^([A-Za-z][\w-]*):(.+)$/.exec(word);
  if (column) {
    const read = reader(column[1] as string, columns);
    if (read) {
      const value = (column[2] as string).toLowerCase();
      return (row) => read(row).toLowerCase().includes(value);
    }
  }
  return anywhere(word);
}

/** Reads one column of a row by its name; none if there is no such column. */
export function reader(name: string, columns: Column[]): ((row: Row) => string) | null {
  switch (name.toLowerCase()) {
    case "name":
      return (row) => row.name;
    case "ns":
    case "namespace":
      return (row) => row.namespace ?? "";
    case "cluster":
      return (row) => row.cluster;
  }
  const wanted = name.toLowerCase().replaceAll("-", " ");
  const index = columns.findIndex((column) => column.name.toLowerCase().replaceAll("-", " ") === wanted);
  if (index < 0) return null;
  return (row) => {
    const cell = row.cells[index];
    return cell === null || cell === undefined ? "" : String(cell);
  };
}
