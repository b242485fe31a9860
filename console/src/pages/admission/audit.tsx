/** What was decided, the latest first: one line for each owner, image and rule. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { AdmissionAudit, AdmissionLine } from "../../api/schema";
import { locale, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { query, setQuery } from "../../router";

const TONE: Record<string, string> = { denied: "bad", monitored: "warn", allowed: "" };

const COLUMNS: TableColumn<AdmissionLine>[] = [
  { id: "last", title: t("Last"), width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
  { id: "outcome", title: t("Verdict"), width: "104px", cell: ({ outcome, dryRun }) => <span class={`tag ${TONE[outcome] ?? ""}`}>{outcome}{dryRun ? ` ${t("(dry run)")}` : ""}</span> },
  { id: "object", title: t("Object"), width: "minmax(180px, 1.4fr)", wrap: true, cell: ({ object, namespace, cluster, owner }) => <span title={t("of {owner}", { owner })}>{object} <span class="faint">{[namespace, cluster].filter(Boolean).join(", ")}</span></span> },
  { id: "image", title: t("Image"), width: "minmax(150px, 1.2fr)", wrap: true, cell: ({ image }) => <span class="mono">{image}</span> },
  { id: "rule", title: t("Rule"), width: "minmax(110px, .8fr)", cell: ({ rule }) => rule },
  { id: "why", title: t("Why"), width: "minmax(200px, 2fr)", wrap: true, cell: ({ why }) => why },
  { id: "user", title: t("Who"), width: "minmax(100px, .8fr)", cell: ({ user }) => <span title={user}>{user}</span> },
  { id: "count", title: t("Times"), width: "64px", end: true, cell: ({ count }) => (count > 1 ? count.toLocaleString(locale) : "") },
];

export function AuditTab() {
  const outcome = query.value.get("outcome") ?? "";
  const read = useFetch(`admission audit ${outcome}`, (signal) => api.get<AdmissionAudit>("/admission/audit", { query: { limit: 300, outcome }, signal }), 4000);
  return (
    <>
      <div class="row">
        <select class="select" aria-label={t("Verdict")} value={outcome} onChange={(event) => setQuery({ outcome: event.currentTarget.value })}>
          <option value="">{t("every verdict")}</option>
          {["denied", "monitored", "allowed"].map((word) => <option key={word} value={word}>{word}</option>)}
        </select>
      </div>
      <Loaded of={read}>
        {({ lines, missing, dropped }) => (
          <>
            {(missing ?? []).map(({ replica, why }) => <div key={replica} class="notice warn"><p>{t("What {replica} decided is missing: {why}", { replica, why })}</p></div>)}
            {dropped > 0 && <p class="muted">{t("{dropped} decisions came faster than they were written down.", { dropped: dropped.toLocaleString(locale) })}</p>}
            {lines.length ? <ShortTable label={t("Decisions")} columns={COLUMNS} rows={lines} rowKey={({ id, cluster }) => `${cluster}${id}`} /> : <Empty title={t("Nothing was decided yet")}><p>{t("The webhook is off until it is asked for; see the documentation of admission.")}</p></Empty>}
          </>
        )}
      </Loaded>
    </>
  );
}
