/** Network rules, in the order in which they are looked at. What was learned can be written down. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ExportedRules, NetworkRuleLine, NetworkRules, Promoted } from "../../api/schema";
import { useCan } from "../../api/session";
import { locale, t } from "../../language";
import { confirm } from "../../parts/dialog";
import { download } from "../../parts/download";
import { Empty, Loaded } from "../../parts/problem";
import { Sentence } from "../../parts/sentence";
import { ShortTable, type TableColumn } from "../../parts/table";
import { toast, toastProblem } from "../../parts/toast";
import { query, setQuery } from "../../router";
import { RuleDialog } from "./rule-dialog";

/** Rows that are drawn; the filter finds the others. */
const SHOWN = 300;

export function RulesTab() {
  const text = query.value.get("q") ?? "";
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [editing, setEditing] = useState<NetworkRuleLine | "new" | null>(null);
  const [mayWrite, mayUpdate, mayDelete] = useCan(["create", "update", "delete"].map((verb) => ({ cluster: "-", resource: "networkrules.fairlead.dev", verb })));
  const read = useFetch("network rules", (signal) => api.get<NetworkRules>("/guard/rules", { signal }), 10_000);
  const promote = () =>
    confirm({
      title: t("Write {size} learned {what} down?", { size: chosen.size, what: chosen.size === 1 ? t("rule") : t("rules") }),
      text: t("They stay as they are, and hold when their groups no longer learn."),
      verb: t("Write down"),
      run: async () => {
        const { promoted } = await api.post<Promoted>("/guard/rules/promote", { names: [...chosen] });
        toast(t("{count} rules are written down.", { count: promoted.length }));
        setChosen(new Set());
        read.reload();
      },
    });
  const remove = ({ name, origin }: NetworkRuleLine) =>
    confirm({
      title: t("Delete the rule {name}?", { name }),
      text: origin === "learned" ? t("It is learned again if it is seen again.") : t("What it allowed or denied is decided by the rules after it."),
      verb: t("Delete"),
      danger: true,
      run: async () => {
        await api.delete(path`/guard/rules/${name}`);
        read.reload();
      },
    });
  const exportThem = async () => {
    try {
      const { policies, notes } = await api.get<ExportedRules>("/guard/rules/export");
      download("networkpolicies.json", JSON.stringify({ apiVersion: "v1", kind: "List", items: policies }, null, 2), "application/json");
      toast(notes.length ? t("{count} policies; {count2} rules say more than a NetworkPolicy can.", { count: policies.length, count2: notes.length }) : t("{count} policies.", { count: policies.length }), notes.length ? "info" : undefined);
    } catch (error) {
      toastProblem(error);
    }
  };
  const columns: TableColumn<NetworkRuleLine>[] = [
    ...(mayWrite
      ? [{
          id: "choose",
          title: <span class="hidden">{t("Choose")}</span>,
          width: "34px",
          cell: ({ name, origin }: NetworkRuleLine) =>
            origin === "learned" && (
              <input
                type="checkbox"
                class="check"
                aria-label={t("Choose {name}", { name })}
                checked={chosen.has(name)}
                onChange={() => setChosen((old) => new Set(old.has(name) ? [...old].filter((one) => one !== name) : [...old, name]))}
              />
            ),
        }]
      : []),
    { id: "name", title: t("Rule"), width: "minmax(170px, 1.4fr)", cell: ({ name, comment }) => <span title={comment || name}>{name}</span> },
    { id: "from", title: t("From"), width: "minmax(150px, 1.2fr)", cell: ({ from }) => <span title={from}>{from}</span> },
    { id: "to", title: t("To"), width: "minmax(150px, 1.2fr)", cell: ({ to }) => <span title={to}>{to}</span> },
    { id: "ports", title: t("Ports"), width: "minmax(110px, .9fr)", cell: ({ ports, applications }) => [...ports, ...(applications ?? [])].join(", ") || <span class="muted">{t("all")}</span> },
    { id: "action", title: t("Action"), width: "76px", cell: ({ action }) => <span class={action === "deny" ? "bad-text" : "ok-text"}>{action}</span> },
    { id: "origin", title: t("Origin"), width: "84px", cell: ({ origin }) => origin },
    { id: "state", title: t("State"), width: "minmax(90px, 1fr)", wrap: true, cell: ({ state, why }) => <span class={state === "invalid" ? "bad-text" : state === "disabled" ? "faint" : ""}>{state}{why && <span class="muted">: {why}</span>}</span> },
    ...(mayDelete || mayUpdate
      ? [{
          id: "do",
          title: <span class="hidden">{t("Actions")}</span>,
          width: "146px",
          end: true,
          cell: (rule: NetworkRuleLine) => (
            <span class="row">
              {mayUpdate && mayWrite && rule.origin === "written" && <button type="button" class="button quiet" onClick={() => setEditing(rule)}>{t("Change")}</button>}
              {mayDelete && <button type="button" class="button quiet" onClick={() => remove(rule)}>{t("Delete")}</button>}
            </span>
          ),
        }]
      : []),
  ];
  return (
    <Loaded of={read}>
      {({ rules, enforcement }) => {
        const wanted = text.toLowerCase();
        const shown = rules.filter((rule) => !wanted || [rule.name, rule.from, rule.to, rule.comment, ...rule.ports].some((part) => part?.toLowerCase().includes(wanted)));
        return (
          <>
            <div class="row wrap">
              <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter rules")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
              <span class="muted number">{shown.length.toLocaleString(locale)}{shown.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span>
              <Sentence text={enforcement} />
              <span class="grow" />
              {mayWrite && chosen.size > 0 && <button type="button" class="button primary" onClick={promote}>{t("Write {size} down…", { size: chosen.size })}</button>}
              {mayWrite && <button type="button" class="button" onClick={() => setEditing("new")}>{t("Write a rule")}</button>}
              <button type="button" class="button" onClick={() => void exportThem()}>{t("Export as NetworkPolicies")}</button>
            </div>
            {shown.length ? <ShortTable label={t("Network rules")} columns={columns} rows={shown.slice(0, SHOWN)} rowKey={({ name }) => name} /> : <Empty title={t("No rule")}><p>{t("Groups in the mode discover learn rules from what is said.")}</p></Empty>}
            {editing && <RuleDialog rule={editing === "new" ? null : editing} groups={[...new Set(rules.flatMap(({ from, to }) => [from, to]))]} onClose={(changed) => { setEditing(null); if (changed) read.reload(); }} />}
          </>
        );
      }}
    </Loaded>
  );
}
