/** Keys that somebody has moved, kept in this browser. */
import { signal } from "@preact/signals";

/** The keys that were moved: from the one that the console has, to the one that is wanted. */
export type Moved = Record<string, string>;

const KEY = "fairlead.keys";
/** Keys that are the browser's or a dialog's own. */
const FIXED = ["Escape", "Enter", "Tab", " "];

export function readMoved(text: string | null): Moved {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    if (typeof value !== "object" || value === null || Array.isArray(value)) return {};
    return Object.fromEntries(Object.entries(value).filter(([from, to]) => typeof to === "string" && isMovable(from) && isMovable(to)));
  } catch {
    return {};
  }
}

function stored(): Moved {
  try {
    return readMoved(localStorage.getItem(KEY));
  } catch {
    return {};
  }
}

export const moved = signal<Moved>(stored());

/** One that is a single character, with shift or without. */
export function isMovable(key: string): boolean {
  return [...key].length === 1 && !FIXED.includes(key);
}

/** The key that is pressed for what the console has at `key`. */
export function pressedFor(key: string, all: Moved = moved.value): string {
  return all[key] ?? key;
}

/** What the console has at the key that was pressed; none where that was moved away. */
export function meantBy(pressed: string, all: Moved = moved.value): string | null {
  const from = Object.keys(all).find((key) => all[key] === pressed);
  return from ?? (pressed in all ? null : pressed);
}

/** Moves a key; to its old place, and it is as before. Two that want the same place change places. */
export function moveKey(key: string, to: string, all: Moved = moved.value): Moved {
  const other = meantBy(to, all);
  const next = { ...all, [key]: to };
  if (other !== null && other !== key) next[other] = pressedFor(key, all);
  return Object.fromEntries(Object.entries(next).filter(([from, at]) => from !== at));
}

export function keepMoved(all: Moved): void {
  moved.value = all;
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
  } catch {
    // A browser that keeps nothing: they hold for this tab.
  }
}
