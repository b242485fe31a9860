/** Every conversation, the latest first; what the server filters by is in the address. */
import { useMemo, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ConversationLine, Conversations } from "../../api/schema";
import { useKeys } from "../../keys";
import { locale, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { VirtualTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { query, setQuery } from "../../router";
import { bytes, End, endName, port, verdictTone } from "./ends";

/** How many are asked for at once: what a person can look through. */
const LIMIT = 5000;

const COLUMNS: TableColumn<ConversationLine>[] = [
  { id: "client", title: t("Client"), width: "minmax(180px, 1.6fr)", cell: ({ client }) => <End end={client} /> },
  { id: "server", title: t("Server"), width: "minmax(180px, 1.6fr)", cell: ({ server }) => <End end={server} /> },
  { id: "port", title: t("Port"), width: "110px", cell: (one) => (one.folded ? <span class="faint" title={t("These are older: only their sums are kept")}>{t("folded")}</span> : port(one.protocol, one.port)) },
  { id: "application", title: t("Application"), width: "minmax(90px, .6fr)", cell: ({ application, applicationBy }) => application && <span title={applicationBy === "port" ? t("What such a port is for") : t("By the first bytes of its connections")}>{applicationBy === "port" ? `(${application})` : application}</span> },
  { id: "verdict", title: t("Verdict"), width: "minmax(110px, .8fr)", cell: ({ verdict, rule }) => verdict && <span class={`tag ${verdictTone(verdict)}`} title={rule ? t("rule {rule}", { rule }) : t("no rule speaks of it")}>{verdict}</span> },
  { id: "sessions", title: t("Sessions"), width: "90px", end: true, cell: ({ sessions }) => sessions.toLocaleString(locale) },
  { id: "bytes", title: t("Bytes"), width: "90px", end: true, cell: (one) => bytes(one.bytes) },
  { id: "last", title: t("Last"), width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
];

export function ConversationsTab() {
  const params = query.value;
  const text = params.get("q") ?? "";
  const asked = { namespace: params.get("ns"), verdict: params.get("verdict"), group: params.get("group"), external: params.get("external") };
  const [at, setAt] = useState(0);
  const read = useFetch(`conversations ${JSON.stringify(asked)}`, (signal) => api.get<Conversations>("/guard/conversations", { query: { ...asked, limit: LIMIT }, signal }), 4000);
  useKeys([{ key: "/", does: t("filter"), run: () => document.getElementById("traffic-filter")?.focus() }]);
  const rows = useMemo(() => {
    const wanted = text.toLowerCase();
    const all = read.data?.conversations ?? [];
    return wanted ? all.filter((one) => [endName(one.client), endName(one.server), one.client.owner, one.server.owner, one.client.address, one.server.address, port(one.protocol, one.port), one.application, one.rule].some((part) => part?.toLowerCase().includes(wanted))) : all;
  }, [read.data, text]);
  return (
    <>
      <div class="row wrap">
        <input id="traffic-filter" class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter conversations")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <input class="field" placeholder="Namespace" aria-label="Namespace" value={asked.namespace ?? ""} onChange={(event) => setQuery({ ns: event.currentTarget.value })} />
        <select class="select" aria-label={t("Verdict")} value={asked.verdict ?? ""} onChange={(event) => setQuery({ verdict: event.currentTarget.value })}>
          <option value="">{t("every verdict")}</option>
          {["allowed", "discovered", "violates", "unjudged"].map((word) => <option key={word} value={word}>{word}</option>)}
        </select>
        <label class="row"><input type="checkbox" class="check" checked={asked.external === "true"} onChange={(event) => setQuery({ external: event.currentTarget.checked ? "true" : null })} /> {t("With the outside")}</label>
        {asked.group && <button type="button" class="button" onClick={() => setQuery({ group: null })}>{t("Group {group} ✕", { group: asked.group })}</button>}
        {read.data && (
          <span class="muted number">
            {t("{matched} conversations, {sessions} sessions, {bytes}{what}", { matched: read.data.matched.toLocaleString(locale), sessions: read.data.totals.sessions.toLocaleString(locale), bytes: bytes(read.data.totals.bytes), what: read.data.matched > read.data.conversations.length ? t("; the latest {count} are shown", { count: read.data.conversations.length.toLocaleString(locale) }) : "" })}
          </span>
        )}
      </div>
      <Loaded of={read}>
        {() => (
          <VirtualTable<ConversationLine>
            label={t("Conversations")}
            columns={COLUMNS}
            count={rows.length}
            row={(index) => rows[index]}
            rowKey={(one) => JSON.stringify([one.client.address, one.server.address, one.protocol, one.port, one.folded])}
            at={Math.min(at, Math.max(0, rows.length - 1))}
            onAt={setAt}
            version={rows}
          >
            {rows.length === 0 && <Empty title={t("No conversation fits")}><p>{t("Agents report some seconds after something was said. As root, Fairlead on one machine watches that machine's own connections.")}</p></Empty>}
          </VirtualTable>
        )}
      </Loaded>
    </>
  );
}
