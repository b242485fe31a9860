/**
 * Keys. A component says which it takes while it is shown; the newest that takes a key gets it.
 *
 * Keys typed into fields, the editor and the terminal are theirs, as are those with a modifier other
 * than shift. ⌘K and Ctrl-K work everywhere. Whoever wants another key for something has it in this
 * browser: a key that was moved means nothing at its old place.
 */
import { useLayoutEffect, useRef } from "preact/hooks";
import { meantBy } from "./moved-keys";

export interface Key {
  /** `j`, `Enter`, `?`, or `mod+k` for ⌘ on a Mac and Ctrl elsewhere. */
  key: string;
  does: string;
  run: (event: KeyboardEvent) => void;
  /** Not listed in the help. */
  hidden?: boolean;
}

const layers: { keys: Key[] }[] = [];

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

function typing(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest(".xterm")) return true;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

/** What the focused element does with a key by itself. */
function ownKey(event: KeyboardEvent): boolean {
  const target = event.composedPath()[0];
  if (!(target instanceof HTMLElement)) return false;
  return (event.key === "Enter" || event.key === " ") && target.closest("button, a, summary, [role=option]") !== null;
}

export function startKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const mod = isMac ? event.metaKey : event.ctrlKey;
    const name = mod && !event.altKey ? `mod+${event.key.toLowerCase()}` : meantBy(event.key);
    if (!mod && (event.metaKey || event.ctrlKey || event.altKey)) return;
    if (!mod && (typing(event) || ownKey(event))) return;
    if (!mod && document.querySelector("dialog[open]")) return;
    for (let index = layers.length - 1; index >= 0; index--) {
      const found = layers[index]?.keys.find(({ key }) => key === name);
      if (found) {
        event.preventDefault();
        found.run(event);
        return;
      }
    }
  });
}

export function useKeys(keys: Key[]): void {
  const layer = useRef({ keys });
  layer.current.keys = keys;
  // With what is shown, not a frame later: who sees a page may press its keys.
  useLayoutEffect(() => {
    const own = layer.current;
    layers.push(own);
    return () => {
      layers.splice(layers.indexOf(own), 1);
    };
  }, []);
}

/** What can be pressed now, for the help: the newest meaning of each key. */
export function activeKeys(): Key[] {
  const found = new Map<string, Key>();
  for (const { keys } of layers) for (const key of keys) if (!key.hidden) found.set(key.key, key);
  return [...found.values()];
}
