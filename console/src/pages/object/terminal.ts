/**
 * A terminal: xterm, without a violation of the content security policy.
 *
 * xterm writes `<style>` elements and `style` attributes, which the policy forbids. It takes the document
 * to make elements with; the one that it is given makes constructed sheets of the former and sets the
 * latter through the object model, which the policy allows.
 */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

function sheetElement(make = document.createElement): HTMLElement {
  const element = make.call(document, "span");
  element.hidden = true;
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", {
    get: () => "",
    set: (text: string) => sheet.replaceSync(text),
  });
  const remove = element.remove.bind(element);
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    remove();
  };
  return element;
}

function withoutStyleAttributes<E extends Element>(element: E): E {
  const set = element.setAttribute.bind(element);
  element.setAttribute = (name: string, value: string) => {
    if (name === "style" && element instanceof HTMLElement) element.style.cssText = value;
    else set(name, value);
  };
  return element;
}

function politeDocument(): Document {
  return new Proxy(document, {
    get(target, property) {
      if (property === "createElement") {
        return (name: string, options?: ElementCreationOptions) =>
          name === "style" ? sheetElement() : withoutStyleAttributes(target.createElement(name, options));
      }
      const value: unknown = Reflect.get(target, property, target);
      return typeof value === "function" ? (value as (...values: unknown[]) => unknown).bind(target) : value;
    },
  });
}

/** Opens with the page's own document polite as well: a part of xterm does not ask for the other. */
function politely(open: () => void): void {
  const make = document.createElement;
  document.createElement = ((name: string, options?: ElementCreationOptions) =>
    name === "style" ? sheetElement(make) : make.call(document, name, options)) as typeof document.createElement;
  try {
    open();
  } finally {
    // The prototype's own comes back.
    delete (document as { createElement?: unknown }).createElement;
  }
}

export interface Screen {
  write: (bytes: Uint8Array | string) => void;
  size: () => { width: number; height: number };
  focus: () => void;
  destroy: () => void;
}

export function openScreen(host: HTMLElement, on: { data: (text: string) => void; resize: (size: { width: number; height: number }) => void }): Screen {
  const terminal = new Terminal({
    documentOverride: politeDocument(),
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
    fontSize: 13,
    scrollback: 10_000,
    screenReaderMode: false,
    theme: { background: "#0e1113", foreground: "#e4e8ea", cursor: "#5cc8bf", selectionBackground: "#2b5c59" },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  politely(() => terminal.open(host));
  fit.fit();
  terminal.onData(on.data);
  terminal.onResize(({ cols, rows }) => on.resize({ width: cols, height: rows }));
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(host);
  return {
    write: (bytes) => terminal.write(bytes),
    size: () => ({ width: terminal.cols, height: terminal.rows }),
    focus: () => terminal.focus(),
    destroy: () => {
      observer.disconnect();
      terminal.dispose();
    },
  };
}
