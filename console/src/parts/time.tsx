/** Times as people read them: ages that go on by themselves. */
import { signal } from "@preact/signals";
import { decimal, locale, t } from "../language";

/** The time by the second, for ages; stands still while the tab is hidden. */
export const now = signal(Date.now());

export function startClock(): void {
  setInterval(() => {
    if (document.visibilityState !== "hidden") now.value = Date.now();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    now.value = Date.now();
  });
}

/** `41 s`, `5 m`, `3 h`, `12 d`, `2 y`: the largest unit that fits, two where the second matters. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 120) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 10) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (days < 10) return hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
  if (days < 730) return `${days}d`;
  return `${Math.floor(days / 365)}y`;
}

export function age(time: string | null | undefined, at: number): string {
  const since = time ? Date.parse(time) : NaN;
  return Number.isNaN(since) ? "" : duration(at - since);
}

/** A time as its age; the time itself as a tooltip. */
export function Age({ time, ago = false }: { time: string | null | undefined; ago?: boolean }) {
  if (!time) return null;
  const text = age(time, now.value);
  return (
    <time dateTime={time} title={new Date(time).toLocaleString(locale)} class="number">
      {ago && text ? t("{age} ago", { age: text }) : text}
    </time>
  );
}

/** `41 ms`, `1.2 s`. */
export function latency(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "";
  if (ms < 1) return "<1 ms";
  return ms < 1000 ? `${Math.round(ms)} ms` : `${decimal(ms / 1000)} s`;
}
