/** The policies in force, in the order in which they decide. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { PolicyLine, PolicyList } from "../../api/schema";
import { locale, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { query, setQuery } from "../../router";

const SHOWN = 500;

const COLUMNS: TableColumn<PolicyLine>[] = [
  { id: "tier", title: t("Tier"), width: "130px", cell: ({ tier, priority }) => <span>{tier} {priority !== null && priority !== undefined && <span class="faint number">{priority}</span>}</span> },
  { id: "policy", title: t("Policy"), width: "minmax(200px, 1.2fr)", cell: ({ kind, policy }) => <span title={`${kind} ${policy}`}>{policy} <span class="faint">{kind}</span></span> },
  { id: "pods", title: "Pods", width: "74px", end: true, cell: ({ pods }) => pods.toLocaleString(locale) },
  { id: "ingress", title: "Ingress", width: "minmax(200px, 1.6fr)", wrap: true, cell: ({ ingress }) => ingress },
  { id: "egress", title: "Egress", width: "minmax(200px, 1.6fr)", wrap: true, cell: ({ egress }) => egress },
];

export function InForceTab() {
  const text = query.value.get("q") ?? "";
  const read = useFetch("policies", (signal) => api.get<PolicyList>("/policies", { signal }), 10_000);
  return (
    <Loaded of={read}>
      {({ policies }) => {
        const shown = policies.filter((one) => !text || [one.policy, one.kind, one.tier, one.ingress, one.egress].some((part) => part.toLowerCase().includes(text.toLowerCase())));
        return (
          <>
            <div class="row">
              <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter policies")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
              <span class="muted number">{shown.length}{shown.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span>
            </div>
            {shown.length ? <ShortTable label={t("Policies in force")} columns={COLUMNS} rows={shown.slice(0, SHOWN)} rowKey={({ kind, policy }) => `${kind} ${policy}`} /> : <Empty title={policies.length ? t("Nothing matches") : t("No policy is in force")}><p>{t("What no policy decides is allowed.")}</p></Empty>}
          </>
        );
      }}
    </Loaded>
  );
}
