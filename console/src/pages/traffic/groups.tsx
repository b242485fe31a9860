/** Groups: made by people or learned from owners, with the mode in which each is judged. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { GroupLine, GroupList } from "../../api/schema";
import { useCan } from "../../api/session";
import { locale, rich, t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Empty, Loaded } from "../../parts/problem";
import { Sentence } from "../../parts/sentence";
import { ShortTable, type TableColumn } from "../../parts/table";
import { href, query, setQuery } from "../../router";
import { criteriaOf, GroupDialog } from "./group-dialog";

const SHOWN = 300;

export function GroupsTab() {
  const text = query.value.get("q") ?? "";
  const [editing, setEditing] = useState<GroupLine | "new" | null>(null);
  const [mayCreate, mayUpdate, mayDelete] = useCan(["create", "update", "delete"].map((verb) => ({ cluster: "-", resource: "groups.fairlead.dev", verb })));
  const mayWrite = mayCreate && mayUpdate;
  const read = useFetch("groups", (signal) => api.get<GroupList>("/guard/groups", { signal }), 10_000);
  const remove = ({ name }: GroupLine) =>
    confirm({
      title: t("Delete the group {name}?", { name }),
      text: t("Rules that name it decide nothing until there is a group of that name again."),
      verb: t("Delete"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/guard/groups/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<GroupLine>[] = [
    { id: "name", title: t("Group"), width: "minmax(170px, 2fr)", cell: ({ name, comment }) => <a href={href("/traffic", { tab: "conversations", group: name })} title={comment || name}>{name}</a> },
    { id: "members", title: t("Workloads"), width: "96px", end: true, cell: ({ members }) => members.toLocaleString(locale) },
    {
      id: "mode",
      title: t("Mode"),
      width: "92px",
      cell: ({ mode }) => <span class={`tag ${mode === "protect" ? "ok" : mode === "monitor" ? "info" : ""}`}>{mode ?? t("default")}</span>,
    },
    { id: "criteria", title: t("Criteria"), width: "minmax(120px, 1.6fr)", wrap: true, cell: ({ criteria, wrong }) => (wrong ? <span class="bad-text">{wrong}</span> : <span class="muted">{(criteria ?? []).join(", ")}</span>) },
    { id: "origin", title: t("Origin"), width: "80px", cell: ({ origin }) => origin },
    ...(mayWrite
      ? [{
          id: "do",
          title: <span class="hidden">{t("Actions")}</span>,
          width: "150px",
          end: true,
          cell: (group: GroupLine) =>
            group.origin === "made" ? (
              <span class="row">
                {criteriaOf(group) && <button type="button" class="button quiet" onClick={() => setEditing(group)}>{t("Change")}</button>}
                {mayDelete && <button type="button" class="button quiet" onClick={() => remove(group)}>{t("Delete")}</button>}
              </span>
            ) : (
              <button type="button" class="button quiet" onClick={() => setEditing(group)}>{t("Make of it…")}</button>
            ),
        }]
      : []),
  ];
  return (
    <Loaded of={read}>
      {({ groups, enforcement }) => {
        const wanted = text.toLowerCase();
        const shown = groups.filter((group) => !wanted || [group.name, group.comment, group.mode, ...(group.criteria ?? [])].some((part) => part?.toLowerCase().includes(wanted)));
        return (
          <>
            <div class="row wrap">
              <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter groups")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
              <span class="muted number">{shown.length.toLocaleString(locale)}{shown.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span>
              {enforcement && <Sentence text={enforcement} />}
              <span class="grow" />
              {mayWrite && <button type="button" class="button" onClick={() => setEditing("new")}>{t("Make a group")}</button>}
            </div>
            {shown.length ? <ShortTable label={t("Groups")} columns={columns} rows={shown.slice(0, SHOWN)} rowKey={({ name }) => name} /> : <Empty title={t("No group")}><p>{rich("Groups are learned from the owners of pods, or made: {code}.", { code: <code>fairlead groups apply -f FILE</code> })}</p></Empty>}
            {editing && <GroupDialog group={editing === "new" ? null : editing} onClose={(changed) => { setEditing(null); if (changed) read.reload(); }} />}
          </>
        );
      }}
    </Loaded>
  );
}
