/** Short words about what was done, or could not be. */
import { signal } from "@preact/signals";
import { explain } from "../api/problem";
import { t } from "../language";
import { Cross } from "./icons";

interface Toast {
  id: number;
  tone: "ok" | "bad" | "info";
  text: string;
  todo?: string | undefined;
}

const toasts = signal<Toast[]>([]);
let next = 1;

export function toast(text: string, tone: Toast["tone"] = "ok", todo?: string): void {
  const id = next++;
  toasts.value = [...toasts.value.slice(-3), { id, tone, text, todo }];
  // A failure stays until it is read.
  if (tone !== "bad") setTimeout(() => drop(id), 5000);
}

export function toastProblem(problem: unknown, doing?: string): void {
  const { sentence, todo } = explain(problem);
  toast(doing ? `${doing}: ${sentence}` : sentence, "bad", todo);
}

function drop(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, tone, text, todo }) => (
        <div key={id} class={`toast ${tone}`}>
          <div class="grow break">
            <p>{text}</p>
            {todo && <p class="muted">{todo}</p>}
          </div>
          <button type="button" class="button quiet icon" aria-label={t("Dismiss")} onClick={() => drop(id)}>
            <Cross />
          </button>
        </div>
      ))}
    </div>
  );
}
