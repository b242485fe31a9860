/** The rules, in the order in which they are decided. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { AdmissionRule, AdmissionRules } from "../../api/schema";
import { useCan } from "../../api/session";
import { rich, t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { query, setQuery } from "../../router";

export function RulesTab() {
  const text = (query.value.get("q") ?? "").toLowerCase();
  const [mayDelete] = useCan([{ cluster: "-", resource: "admissionrules.fairlead.dev", verb: "delete" }]);
  const read = useFetch("admission rules", (signal) => api.get<AdmissionRules>("/admission/rules", { signal }), 10_000);
  const remove = ({ name }: AdmissionRule) =>
    confirm({
      title: t("Delete the rule {name}?", { name }),
      text: t("What it refused is decided by the rules after it."),
      verb: t("Delete"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/admission/rules/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<AdmissionRule>[] = [
    { id: "name", title: t("Rule"), width: "minmax(150px, 1fr)", cell: ({ name, comment }) => <span title={comment || name}>{name}</span> },
    { id: "action", title: t("Action"), width: "130px", cell: ({ action, mode }) => <><span class={action === "deny" ? "bad-text" : "ok-text"}>{action}</span>{mode && <span class="muted"> {mode}</span>}</> },
    { id: "criteria", title: t("Criteria, all of them"), width: "minmax(260px, 3fr)", wrap: true, cell: ({ criteria }) => criteria.map((one) => <code key={one} class="criterion">{one}</code>) },
    { id: "state", title: t("State"), width: "minmax(120px, 1.2fr)", wrap: true, cell: ({ state, why }) => <span class={state === "invalid" ? "bad-text" : state === "disabled" ? "faint" : ""}>{state}{why && <span class="muted">: {why}</span>}</span> },
    { id: "origin", title: t("Layer"), width: "110px", cell: ({ origin, critical }) => <span class="muted">{critical ? t("critical") : origin.replace("_", " ")}</span> },
    ...(mayDelete ? [{ id: "delete", title: <span class="hidden">{t("Actions")}</span>, width: "78px", end: true, cell: (rule: AdmissionRule) => <button type="button" class="button quiet" onClick={() => remove(rule)}>{t("Delete")}</button> }] : []),
  ];
  return (
    <Loaded of={read}>
      {({ rules }) => {
        const shown = rules.filter((rule) => !text || [rule.name, rule.comment, rule.state, ...rule.criteria].some((part) => part?.toLowerCase().includes(text)));
        return (
          <>
            {rules.length > 5 && <div class="row"><input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter rules")} value={query.value.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} /><span class="muted number">{shown.length}</span></div>}
            {shown.length ? (
              <ShortTable label={t("Admission rules")} columns={columns} rows={shown} rowKey={({ name }) => name} />
            ) : (
              <Empty title={t("No rule")}><p>{rich("NeuVector's come along: {code}. The playground tries rules before they are applied.", { code: <code>fairlead admission import FILE &gt; rules.yaml</code> })}</p></Empty>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
