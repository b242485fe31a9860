/** Light or dark: as the system prefers, or as was chosen. */
import { effect, signal } from "@preact/signals";

export type Choice = "system" | "light" | "dark";

const KEY = "fairlead.theme";
const preferred = matchMedia("(prefers-color-scheme: dark)");

function stored(): Choice {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const choice = signal<Choice>(stored());
export const dark = signal(false);

export function startTheme(): void {
  const apply = () => {
    dark.value = choice.value === "dark" || (choice.value === "system" && preferred.matches);
    document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
  };
  effect(apply);
  preferred.addEventListener("change", apply);
}

export function choose(next: Choice): void {
  choice.value = next;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // A browser that keeps nothing: the choice holds for this tab.
  }
}
