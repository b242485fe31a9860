/** Dialogs on the browser's own `<dialog>`: it keeps the focus, and Esc closes it. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { rich, t } from "../language";
import { ProblemNotice } from "./problem";

export function Dialog(props: { title: string; wide?: boolean; onClose: () => void; children: ComponentChildren; class?: string; labelled?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  // Open before the next key: what is typed right after `:` belongs into the dialog.
  useLayoutEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={props.class ?? `dialog${props.wide ? " wide" : ""}`}
      aria-label={props.title}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClose={() => {
        // The browser closes it without asking when Esc is pressed twice; what is gone already is not closed.
        if (ref.current?.isConnected) props.onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === ref.current) props.onClose();
      }}
    >
      {props.children}
    </dialog>
  );
}

export interface Confirmation {
  title: string;
  /** What will happen, in a sentence or two. */
  text: ComponentChildren;
  /** The word on the button: Delete, Drain. */
  verb: string;
  danger?: boolean;
  /** Must be typed before the button works. */
  name?: string;
  /** Further fields. */
  fields?: ComponentChildren;
  wide?: boolean;
  /** Does it; the dialog stays open with the reason if it throws. */
  run: () => Promise<void> | void;
}

const asked = signal<Confirmation | null>(null);

/** Asks before something is done. */
export function confirm(confirmation: Confirmation): void {
  asked.value = confirmation;
}

export function Confirmations() {
  const confirmation = asked.value;
  return confirmation && <Confirm key={confirmation.title} of={confirmation} />;
}

function Confirm({ of }: { of: Confirmation }) {
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const id = useId();
  const close = () => {
    asked.value = null;
  };
  const ready = !busy && (of.name === undefined || typed === of.name);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setProblem(null);
    try {
      await of.run();
      // What was done may have asked the next question.
      if (asked.value === of) close();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={of.title} wide={of.wide ?? false} onClose={close}>
      <form onSubmit={(event) => void run(event)}>
        <h1>{of.title}</h1>
        <div class="break">{of.text}</div>
        {of.fields}
        {of.name !== undefined && (
          <label class="label" for={id}>
            <span>
              {rich("Type {name} to confirm", { name: <code class="break">{of.name}</code> })}
            </span>
            <input
              id={id}
              class="field mono"
              value={typed}
              autocomplete="off"
              spellcheck={false}
              autofocus
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        )}
        {problem !== null && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={close}>
            {t("Cancel")}
          </button>
          <button type="submit" class={`button primary${of.danger ? " danger" : ""}`} disabled={!ready}>
            {busy ? t("Working…") : of.verb}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
