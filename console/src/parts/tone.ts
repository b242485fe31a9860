/** Which words of Kubernetes are good and which are not. */
import type { Tone } from "../fleet";

const BAD = /backoff|^error|err(image|or)|fail|oomkilled|notready|evicted|unknown|^lost|invalid|cannot|deadline|forbidden|unreachable|unauthor|misconf/i;
const WARN = /pending|creating|terminating|^init:|initializing|schedulingdisabled|waiting|progressing|degraded|connecting|stale|warning|unhealthy|suspended|paused/i;
const OK = /^(running|ready|active|bound|available|true|healthy|established|approved|normal|live|deployed|succeeded|completed?)\b/i;

/** The tone of a word in a column such as Status. */
export function wordTone(word: string): Tone {
  if (/^(completed?|succeeded|normal)$/i.test(word)) return "";
  if (BAD.test(word)) return "bad";
  if (WARN.test(word)) return "warn";
  return OK.test(word) ? "ok" : "";
}

/** `1/2` is not all: whether a count of a count is short. */
export function isShort(text: string): boolean {
  const found = /^(\d+)\/(\d+)$/.exec(text);
  return found !== null && Number(found[1]) < Number(found[2]);
}
