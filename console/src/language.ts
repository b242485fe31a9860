/**
 * The words of the console, in the language of who reads it.
 *
 * A message is its English text; the other languages have a text for each of them, and what is missing
 * does not compile. English needs no catalogue, and one of another language is fetched before anything
 * is drawn: the rest of the console takes its words when it is loaded. What Kubernetes and the API say
 * stays as they say it.
 */
import type { ComponentChildren } from "preact";

export type Message = keyof typeof import("./languages/de").default;
export type Catalogue = Record<Message, string>;
export type Language = "en" | "de" | "ja" | "zh";

/** Each in its own words, for who cannot read the others. */
export const languages: Record<Language, string> = { en: "English", de: "Deutsch", ja: "日本語", zh: "简体中文" };

const KEY = "fairlead.language";
const catalogues: Record<Exclude<Language, "en">, () => Promise<{ default: Catalogue }>> = {
  de: () => import("./languages/de"),
  ja: () => import("./languages/ja"),
  zh: () => import("./languages/zh"),
};

const isLanguage = (word: string | null | undefined): word is Language => word !== null && word !== undefined && Object.hasOwn(languages, word);

/** The language that was chosen here, or the first of the browser's that there is. */
export function languageOf(chosen: string | null, wanted: readonly string[]): Language {
  if (isLanguage(chosen)) return chosen;
  return wanted.map((tag) => tag.toLowerCase().split("-")[0]).find(isLanguage) ?? "en";
}

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

const wanted = globalThis.navigator?.languages ?? [];
export const language = languageOf(stored(), wanted);
/** For numbers and times: the browser's own form of the language, if it has one. */
export const locale = wanted.find((tag) => tag.toLowerCase().startsWith(language)) ?? (language === "zh" ? "zh-CN" : language);

// English is better than an empty page where a catalogue does not come.
const words: Partial<Catalogue> = language === "en" ? {} : await catalogues[language]().then((module) => module.default, () => ({}));
if (globalThis.document) document.documentElement.lang = locale;

/** Keeps the choice, and loads the page again in that language. */
export function chooseLanguage(next: Language): void {
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // A browser that keeps nothing stays with its own language.
  }
  location.reload();
}

/** A number with so many digits after its point, at most and at least. */
export function decimal(value: number, most = 1, least = most): string {
  return value.toLocaleString(locale, { maximumFractionDigits: most, minimumFractionDigits: least });
}

/** The text between the places of a message, and the names of those places: at odd numbers. */
const parts = (message: Message): string[] => (words[message] ?? message).split(/\{(\w+)\}/);

/** A message with values at its places. */
export function t(message: Message, values: Record<string, unknown> = {}): string {
  return parts(message).map((part, index) => (index % 2 ? String(values[part] ?? "") : part)).join("");
}

/** The same, where some of the values are elements. */
export function rich(message: Message, values: Record<string, ComponentChildren>): ComponentChildren {
  return parts(message).map((part, index) => (index % 2 ? values[part] : part));
}
