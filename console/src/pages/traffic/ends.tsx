/** The two ends of a conversation, in words. */
import type { ConversationEnd } from "../../api/schema";
import { decimal, t } from "../../language";

/** What is known by its kind alone has its address with it. */
export function endName({ name, kind, address }: ConversationEnd): string {
  return !name ? address : name === kind && address ? `${name} ${address}` : name;
}

export function End({ end }: { end: ConversationEnd }) {
  const about = [end.kind, end.owner, end.node && t("on {node}", { node: end.node }), end.address].filter(Boolean).join(", ");
  return <span title={about}>{endName(end)}</span>;
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** `5.1 MB`. */
export function bytes(count: number): string {
  let [value, unit] = [count, 0];
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : decimal(value)} ${UNITS[unit]}`;
}

export function port(protocol: string | null | undefined, number: number | null | undefined): string {
  if (!protocol) return "";
  return number === null || number === undefined ? protocol : `${protocol} ${number}`;
}

export function verdictTone(verdict: string | null | undefined): string {
  if (verdict === "violates" || verdict === "denied") return "bad";
  return verdict === "discovered" ? "info" : verdict === "allowed" ? "ok" : "";
}
