/** Response rules in the order in which they are looked at: which events, and what is done about them. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ListedResponse, ResponseList } from "../../api/schema";
import { useCan } from "../../api/session";
import { t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { conditionsText, ResponseDialog, type ResponseSpec } from "./response-dialog";

const TONES: Record<string, string> = { active: "ok", invalid: "bad", disabled: "" };

export function ResponsesTab() {
  const [editing, setEditing] = useState<ListedResponse | "new" | null>(null);
  const [mayUpdate, mayDelete] = useCan(["update", "delete"].map((verb) => ({ cluster: "-", resource: "responserules.fairlead.dev", verb })));
  const read = useFetch("responses", (signal) => api.get<ResponseList>("/responses", { signal }), 5000);
  const remove = ({ name }: ListedResponse) =>
    confirm({
      title: t("Delete the response rule {name}?", { name }),
      text: t("What it was about is looked at by the rules after it; what no rule matches is told to nobody."),
      verb: t("Delete"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/responses/${name}`);
        read.reload();
      },
    });
  const specOf = ({ spec }: ListedResponse) => spec as unknown as ResponseSpec;
  const columns: TableColumn<ListedResponse>[] = [
    { id: "priority", title: t("Priority"), width: "84px", end: true, cell: (one) => specOf(one).priority },
    { id: "name", title: t("Rule"), width: "minmax(130px, 1fr)", cell: (one) => <span title={specOf(one).comment ?? one.name}>{one.name}</span> },
    { id: "event", title: t("Events"), width: "minmax(220px, 2fr)", wrap: true, cell: (one) => <span><strong>{specOf(one).event}</strong> <span class="muted">{conditionsText(specOf(one))}</span></span> },
    { id: "actions", title: t("Does"), width: "minmax(160px, 1.2fr)", wrap: true, cell: (one) => <span>{specOf(one).actions.join(", ")}{specOf(one).receivers?.length ? <span class="muted"> {specOf(one).receivers?.join(", ")}</span> : ""}</span> },
    { id: "state", title: t("State"), width: "minmax(100px, 1fr)", wrap: true, cell: ({ state, why }) => <span><span class={`tag ${TONES[state] ?? ""}`}>{state}</span>{why && <span class="bad-text"> {why}</span>}</span> },
    ...(mayUpdate
      ? [{
          id: "do",
          title: <span class="hidden">{t("Actions")}</span>,
          width: "150px",
          end: true,
          cell: (one: ListedResponse) => (
            <span class="row">
              <button type="button" class="button quiet" onClick={() => setEditing(one)}>{t("Change")}</button>
              {mayDelete && <button type="button" class="button quiet" onClick={() => remove(one)}>{t("Delete")}</button>}
            </span>
          ),
        }]
      : []),
  ];
  return (
    <Loaded of={read}>
      {({ responses }) => (
        <>
          <div class="row">
            <span class="muted grow">{t("Every rule that matches an event acts on it, until one suppresses it. What no rule matches is told to nobody.")}</span>
            {mayUpdate && <button type="button" class="button" onClick={() => setEditing("new")}>{t("Add a response rule")}</button>}
          </div>
          {responses.length ? <ShortTable label={t("Response rules")} columns={columns} rows={responses} rowKey={({ name }) => name} /> : <Empty title={t("Nothing is done about events")}><p>{t("A rule says which events are told to which receivers, suppressed, or answered with a quarantine.")}</p></Empty>}
          {editing && <ResponseDialog rule={editing === "new" ? null : editing} onClose={(changed) => { setEditing(null); if (changed) read.reload(); }} />}
        </>
      )}
    </Loaded>
  );
}
