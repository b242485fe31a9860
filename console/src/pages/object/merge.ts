/** Puts one's own changes of a text on a newer version of it. */
import { Chunk } from "@codemirror/merge";
import { Text } from "@codemirror/state";

export interface Merged {
  text: string;
  /** Places that both changed: one's own are kept there, to be looked at. */
  both: number;
}

interface Change {
  /** Lines of the base: from, up to and without. */
  from: number;
  to: number;
  lines: string[];
}

function changes(base: Text, other: Text): Change[] {
  const line = (text: Text, at: number) => (at >= text.length ? (at > text.length ? text.lines + 1 : text.lineAt(text.length).number) : text.lineAt(at).number);
  return Chunk.build(base, other).map(({ fromA, toA, fromB, toB }) => {
    const [from, to] = [line(base, fromA), line(base, toA)];
    const [first, last] = [line(other, fromB), line(other, toB)];
    const lines: string[] = [];
    for (let number = first; number < Math.min(last, other.lines + 1); number++) lines.push(other.line(number).text);
    return { from, to, lines };
  });
}

export function merge(base: string, own: string, newest: string): Merged {
  // With an end that no line has, so that every change is of whole lines.
  const [before, mine, theirs] = [base, own, newest].map((text) => Text.of([...text.split("\n"), "\u0000"])) as [Text, Text, Text];
  const ours = changes(before, mine);
  const others = changes(before, theirs);
  const overlaps = (one: Change) => others.find((other) => one.from < other.to && other.from < one.to) ?? others.find((other) => one.from === other.from && one.to === other.to);
  let both = 0;
  const all: Change[] = [];
  for (const change of ours) {
    if (overlaps(change)) both++;
    all.push(change);
  }
  for (const other of others) if (!ours.some((one) => overlaps(one) === other || (one.from < other.to && other.from < one.to))) all.push(other);
  all.sort((a, b) => a.from - b.from || a.to - b.to);
  const lines: string[] = [];
  let next = 1;
  for (const { from, to, lines: put } of all) {
    while (next < from) lines.push(before.line(next++).text);
    lines.push(...put);
    next = Math.max(next, to);
  }
  while (next <= before.lines) lines.push(before.line(next++).text);
  return { text: lines.filter((line) => line !== "\u0000").join("\n"), both };
}
