/** What was done through Fairlead, by whom, and what came of it. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { AuditEntry, AuditPage } from "../../api/schema";
import { t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toastProblem } from "../../parts/toast";
import { query, setQuery } from "../../router";

const COLUMNS: TableColumn<AuditEntry>[] = [
  { id: "at", title: t("When"), width: "84px", end: true, cell: ({ at }) => <Age time={at} /> },
  { id: "user", title: t("Who"), width: "minmax(110px, .8fr)", cell: ({ user, via, from }) => <span title={[via, from].filter(Boolean).join(`${t(", from")} `)}>{user}</span> },
  { id: "verb", title: t("Did"), width: "128px", cell: ({ verb, dryRun }) => <span>{verb}{dryRun && <span class="muted"> {t("dry run")}</span>}</span> },
  { id: "what", title: t("What"), width: "minmax(220px, 2fr)", wrap: true, cell: ({ resource, namespace, name }) => <span>{resource === "*" ? t("objects from YAML, in") : resource} <span class="mono">{[namespace, name].filter(Boolean).join("/")}</span></span> },
  { id: "cluster", title: t("Cluster"), width: "minmax(90px, .7fr)", cell: ({ cluster }) => (cluster === "-" ? <span class="muted">{t("the fleet")}</span> : cluster) },
  { id: "outcome", title: t("Outcome"), width: "minmax(160px, 2fr)", wrap: true, cell: ({ outcome }) => <span class={outcome === "ok" || outcome.startsWith("ok:") || outcome === "opened" ? "" : "warn-text"}>{outcome}</span> },
];

export function AuditTab() {
  const user = query.value.get("user") ?? "";
  const cluster = query.value.get("cluster") ?? "";
  const [older, setOlder] = useState<{ key: string; entries: AuditEntry[]; complete: boolean }>({ key: "", entries: [], complete: false });
  const key = `audit ${user} ${cluster}`;
  const read = useFetch(key, (signal) => api.get<AuditPage>("/audit", { query: { limit: 100, user, cluster }, signal }));
  const more = older.key === key ? older : { key, entries: [], complete: false };
  const goOn = async (after: string) => {
    try {
      const page = await api.get<AuditPage>("/audit", { query: { limit: 100, user, cluster, olderThan: after } });
      setOlder({ key, entries: [...more.entries, ...page.entries], complete: page.complete });
    } catch (error) {
      toastProblem(error);
    }
  };
  return (
    <>
      <div class="row wrap">
        <input class="field" placeholder={t("User")} aria-label={t("Of this user")} value={user} onChange={(event) => setQuery({ user: event.currentTarget.value })} />
        <input class="field" placeholder={t("Cluster")} aria-label={t("In this cluster")} value={cluster} onChange={(event) => setQuery({ cluster: event.currentTarget.value })} />
        <button type="button" class="button quiet" onClick={read.reload}>{t("Read again")}</button>
      </div>
      <Loaded of={read}>
        {({ entries, complete, missing }) => {
          const all = [...entries, ...more.entries];
          const last = all.at(-1);
          return (
            <>
              {(missing ?? []).map(({ replica, why }) => <div key={replica} class="notice warn"><p>{t("What was done through {replica} is missing: {why}", { replica, why })}</p></div>)}
              {all.length ? <ShortTable label={t("Audit")} columns={COLUMNS} rows={all} rowKey={({ id }) => id} /> : <Empty title={t("Nothing fits")} />}
              {last && !complete && !more.complete && <div class="row"><button type="button" class="button" onClick={() => void goOn(last.id)}>{t("Older")}</button></div>}
            </>
          );
        }}
      </Loaded>
    </>
  );
}
