/** Every receiver with its queue; each is tested, changed and removed here. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ReceiverList, ReceiverState, ReceiverTest } from "../../api/schema";
import { useCan } from "../../api/session";
import { locale, rich, t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast, toastProblem } from "../../parts/toast";
import { ReceiverDialog } from "./receiver-dialog";
import { placeOf } from "./spec";

const TONES: Record<string, string> = { idle: "ok", delivering: "info", failing: "bad", invalid: "bad", disabled: "" };

export function ReceiversTab() {
  const [editing, setEditing] = useState<ReceiverState | "new" | null>(null);
  const [mayUpdate, mayDelete] = useCan(["update", "delete"].map((verb) => ({ cluster: "-", resource: "receivers.fairlead.dev", verb })));
  const read = useFetch("receivers", (signal) => api.get<ReceiverList>("/receivers", { signal }), 3000);
  const test = async ({ name }: ReceiverState) => {
    try {
      const { taken, why } = await api.post<ReceiverTest>(path`/receivers/${name}/test`);
      toast(taken ? t("{name} took the test.", { name }) : t("{name} did not take the test: {why}", { name, why: why ?? t("it did not say why") }), taken ? "ok" : "bad");
    } catch (error) {
      toastProblem(error, name);
    }
    read.reload();
  };
  const remove = ({ name, queued }: ReceiverState) =>
    confirm({
      title: t("Delete the receiver {name}?", { name }),
      text: queued ? t("{queued} notifications wait for it, and are lost with it.", { queued: queued.toLocaleString(locale) }) : t("Response rules that name it tell nobody."),
      verb: t("Delete"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/receivers/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<ReceiverState>[] = [
    { id: "name", title: t("Receiver"), width: "minmax(80px, 1fr)", cell: ({ name, spec }) => <span title={String(spec["comment"] ?? name)}>{name}</span> },
    { id: "type", title: t("Where"), width: "minmax(116px, 2.4fr)", cell: ({ type, spec }) => <span title={placeOf(spec)}>{type} <span class="faint">{placeOf(spec)}</span></span> },
    { id: "state", title: t("State"), width: "minmax(84px, 2fr)", wrap: true, cell: ({ state, why, since, attempts }) => <span><span class={`tag ${TONES[state] ?? ""}`}>{state}</span>{why && <span class="bad-text">{" "}{why}{since && <span class="muted">{" "}{rich("For {age}, {attempts} {what}.", { age: <Age time={since} />, attempts, what: attempts === 1 ? t("try") : t("tries") })}</span>}</span>}</span> },
    { id: "queued", title: t("Waiting"), width: "72px", end: true, cell: ({ queued }) => (queued ? <span class="warn-text">{queued.toLocaleString(locale)}</span> : "") },
    { id: "delivered", title: t("Taken"), width: "64px", end: true, cell: ({ delivered }) => delivered.toLocaleString(locale) },
    { id: "dropped", title: t("Lost"), width: "50px", end: true, cell: ({ dropped }) => (dropped ? <span class="bad-text">{dropped.toLocaleString(locale)}</span> : "") },
    { id: "last", title: t("Last"), width: "52px", end: true, cell: ({ lastDelivery }) => <Age time={lastDelivery} /> },
    ...(mayUpdate
      ? [{
          id: "do",
          title: <span class="hidden">{t("Actions")}</span>,
          width: "210px",
          end: true,
          cell: (one: ReceiverState) => (
            <span class="row">
              <button type="button" class="button quiet" onClick={() => void test(one)}>{t("Test")}</button>
              <button type="button" class="button quiet" onClick={() => setEditing(one)}>{t("Change")}</button>
              {mayDelete && <button type="button" class="button quiet" onClick={() => remove(one)}>{t("Delete")}</button>}
            </span>
          ),
        }]
      : []),
  ];
  return (
    <Loaded of={read}>
      {({ receivers }) => (
        <>
          <div class="row">
            <span class="muted grow">{t("Each receiver has a queue of its own, on disk; those of all replicas are added up.")}</span>
            {mayUpdate && <button type="button" class="button" onClick={() => setEditing("new")}>{t("Add a receiver")}</button>}
          </div>
          {receivers.length ? <ShortTable label={t("Receivers")} columns={columns} rows={receivers} rowKey={({ name }) => name} /> : <Empty title={t("Nobody is told")}><p>{t("A webhook, syslog, Slack, Teams, Alertmanager or mail: each with a durable queue, so that one that hangs holds up nothing but itself.")}</p></Empty>}
          {editing && <ReceiverDialog receiver={editing === "new" ? null : editing} onClose={(changed) => { setEditing(null); if (changed) read.reload(); }} />}
        </>
      )}
    </Loaded>
  );
}
