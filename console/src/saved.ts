/**
 * Favourites and saved searches: addresses with a name, kept in this browser for each user. An address is
 * the whole state of a page, so one kind of thing serves both.
 */
import { computed, signal } from "@preact/signals";
import { session } from "./api/session";

export interface Saved {
  title: string;
  /** Path and query. */
  href: string;
  /** Said beside it: the kind, the cluster. */
  note?: string;
}

/** More than fit on a screen are no favourites. */
const MOST = 60;

const user = computed(() => (session.value.state === "in" ? session.value.me.user : null));
const keyOf = (name: string): string => `fairlead.saved.${name}`;

export function readSaved(text: string | null): Saved[] {
  try {
    const value: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(value)) return [];
    // What is stored here becomes links: nothing but paths of this page.
    return value.filter((one): one is Saved => typeof one?.title === "string" && typeof one?.href === "string" && /^\/(?!\/)/.test(one.href)).slice(0, MOST);
  } catch {
    return [];
  }
}

const changed = signal(0);
/** For a browser that keeps nothing: what was saved holds for this tab. */
const forTab = new Map<string, Saved[]>();

export const saved = computed<Saved[]>(() => {
  void changed.value;
  const name = user.value;
  if (name === null) return [];
  try {
    return forTab.get(name) ?? readSaved(localStorage.getItem(keyOf(name)));
  } catch {
    return [];
  }
});

function write(all: Saved[]): void {
  const name = user.value;
  if (name === null) return;
  try {
    localStorage.setItem(keyOf(name), JSON.stringify(all));
  } catch {
    forTab.set(name, all);
  }
  changed.value++;
}

export function isSaved(href: string): boolean {
  return saved.value.some((one) => one.href === href);
}

export function save(one: Saved): void {
  write([...saved.value.filter(({ href }) => href !== one.href), one].slice(-MOST));
}

export function forget(href: string): void {
  write(saved.value.filter((one) => one.href !== href));
}

/** Follows what other tabs save. */
export function startSaved(): void {
  addEventListener("storage", ({ key }) => {
    if (key === null || key.startsWith("fairlead.saved.")) changed.value++;
  });
}
