/** The types of receivers: their fields, and which of those are secret. */
import { t } from "../../language";

export interface Field {
  key: string;
  title: string;
  placeholder?: string;
  required?: boolean;
  choices?: string[];
  /** Kept in a Secret, and never read back. */
  secret?: boolean;
  /** Comma separated. */
  list?: boolean;
}

export const TYPES: Record<string, { title: string; fields: Field[] }> = {
  webhook: { title: "Webhook", fields: [{ key: "url", title: "URL", placeholder: "https://siem.example.com/events", required: true }, { key: "hmac-key", title: t("Signing key"), secret: true, placeholder: "whsec_…" }, { key: "authorization", title: t("Authorization header"), secret: true }] },
  syslog: { title: "Syslog", fields: [{ key: "address", title: t("Host and port"), placeholder: "logs.example.com:6514", required: true }, { key: "transport", title: t("Transport"), choices: ["tls", "tcp", "udp"] }] },
  slack: { title: "Slack", fields: [{ key: "url", title: t("Incoming webhook"), secret: true, required: true, placeholder: "https://hooks.slack.com/…" }, { key: "channel", title: t("Channel") }] },
  teams: { title: "Teams", fields: [{ key: "url", title: t("Workflow URL"), secret: true, required: true }, { key: "title", title: t("Title of messages") }] },
  alertmanager: { title: "Alertmanager", fields: [{ key: "url", title: "URL", placeholder: "https://alertmanager.example.com", required: true }, { key: "token", title: t("Bearer token"), secret: true }] },
  email: { title: t("Mail"), fields: [{ key: "server", title: t("Server"), placeholder: "mail.example.com:587", required: true }, { key: "security", title: t("Security"), choices: ["starttls", "tls", "none"] }, { key: "from", title: t("From"), required: true }, { key: "to", title: t("To"), required: true, list: true, placeholder: "ops@example.com, …" }, { key: "username", title: t("User"), secret: true }, { key: "password", title: t("Password"), secret: true }] },
};

export type Spec = Record<string, unknown>;

export function typeOf(spec: Spec): string {
  return Object.keys(TYPES).find((type) => spec[type]) ?? "webhook";
}

/** Where it goes, as far as that is no secret. */
export function placeOf(spec: Spec): string {
  const own = (spec[typeOf(spec)] ?? {}) as Record<string, unknown>;
  return String(own["url"] ?? own["address"] ?? own["server"] ?? own["channel"] ?? own["title"] ?? "");
}

/** What was typed, as a spec and its secrets. What is left empty is left out: a secret stays what it is. */
export function specOf(type: string, typed: Record<string, string>, before: Spec, disabled: boolean): { spec: Spec; secret?: Record<string, string> } {
  const own: Spec = {};
  const secret: Record<string, string> = {};
  const was = (before[type] ?? {}) as Spec;
  // Fields that this page does not know stay.
  for (const [key, value] of Object.entries(was)) if (!TYPES[type]?.fields.some((field) => field.key === key)) own[key] = value;
  for (const { key, secret: isSecret, list, choices } of TYPES[type]?.fields ?? []) {
    const value = (typed[key] ?? choices?.[0] ?? "").trim();
    if (!value) continue;
    if (isSecret) secret[key] = value;
    else own[key] = list ? value.split(",").map((one) => one.trim()).filter(Boolean) : value;
  }
  const { comment, ca, secret: named } = before;
  const same = before[type] !== undefined;
  const spec: Spec = { ...(comment ? { comment } : {}), ...(ca && same ? { ca } : {}), ...(named && same ? { secret: named } : {}), disabled, [type]: own };
  return Object.keys(secret).length ? { spec, secret } : { spec };
}
