/** A panel below a button: menus and choosers. Esc, a click elsewhere or a move of the page closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export function Popover(props: {
  label: ComponentChildren;
  /** The button's name where its content does not say it. */
  name?: string;
  class?: string;
  title?: string;
  children: (close: () => void) => ComponentChildren;
}) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };

  useLayoutEffect(() => {
    if (!open || !panel.current || !button.current) return;
    const at = button.current.getBoundingClientRect();
    const own = panel.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, innerWidth - own.width - 8));
    const below = at.bottom + 4 + own.height <= innerHeight;
    panel.current.style.left = `${left}px`;
    panel.current.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - own.height - 4)}px`;
    const first = panel.current.querySelector<HTMLElement>("input, [autofocus], button, a");
    first?.focus();
  }, [open]);

  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      const path = event.composedPath();
      if (!path.includes(panel.current as EventTarget) && !path.includes(button.current as EventTarget)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    addEventListener("resize", outside);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("resize", outside);
    };
  }, [open]);

  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
      return;
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const items = [...(panel.current?.querySelectorAll<HTMLElement>(".item:not(:disabled)") ?? [])];
    if (!items.length) return;
    event.preventDefault();
    const at = items.indexOf(document.activeElement as HTMLElement);
    const step = event.key === "ArrowDown" ? 1 : -1;
    items[(at + step + items.length) % items.length]?.focus();
  };

  return (
    <>
      <button
        ref={button}
        type="button"
        class={props.class ?? "button"}
        aria-expanded={open}
        aria-haspopup="true"
        aria-label={props.name}
        title={props.title}
        onClick={(event) => {
          event.stopPropagation();
          setOpen(!open);
        }}
      >
        {props.label}
      </button>
      {open && (
        <div ref={panel} class="popover" onKeyDown={keys} onClick={(event) => event.stopPropagation()}>
          {props.children(close)}
        </div>
      )}
    </>
  );
}
