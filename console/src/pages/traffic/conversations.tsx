/** Every conversation, the latest first; what the server filters by is in the address. */
import { useMemo, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ConversationLine, Conversations } from "../../api/schema";
import { useKeys } from "../../keys";
import { Empty, Loaded } from "../../parts/problem";
import { VirtualTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { query, setQuery } from "../../router";
import { bytes, End, endName, port, verdictTone } from "./ends";

/** How many are asked for at once: what a person can look through. */
const LIMIT = 5000;

const COLUMNS: TableColumn<ConversationLine>[] = [
  { id: "client", title: "Client", width: "minmax(180px, 1.6fr)", cell: ({ client }) => <End end={client} /> },
  { id: "server", title: "Server", width: "minmax(180px, 1.6fr)", cell: ({ server }) => <End end={server} /> },
  { id: "port", title: "Port", width: "110px", cell: (one) => (one.folded ? <span class="faint" title="These are older: only their sums are kept">folded</span> : port(one.protocol, one.port)) },
  { id: "application", title: "Application", width: "minmax(90px, .6fr)", cell: ({ application, applicationBy }) => (application && applicationBy === "port" ? `(${application})` : application) },
  { id: "verdict", title: "Verdict", width: "minmax(110px, .8fr)", cell: ({ verdict, rule }) => verdict && <span class={`tag ${verdictTone(verdict)}`} title={rule ? `rule ${rule}` : "no rule speaks of it"}>{verdict}</span> },
  { id: "sessions", title: "Sessions", width: "90px", end: true, cell: ({ sessions }) => sessions.toLocaleString("en") },
  { id: "bytes", title: "Bytes", width: "90px", end: true, cell: (one) => bytes(one.bytes) },
  { id: "last", title: "Last", width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
];

export function ConversationsTab() {
  const params = query.value;
  const text = params.get("q") ?? "";
  const asked = { namespace: params.get("ns"), verdict: params.get("verdict"), group: params.get("group"), external: params.get("external") };
  const [at, setAt] = useState(0);
  const read = useFetch(`conversations ${JSON.stringify(asked)}`, (signal) => api.get<Conversations>("/guard/conversations", { query: { ...asked, limit: LIMIT }, signal }), 4000);
  useKeys([{ key: "/", does: "filter", run: () => document.getElementById("traffic-filter")?.focus() }]);
  const rows = useMemo(() => {
    const wanted = text.toLowerCase();
    const all = read.data?.conversations ?? [];
    return wanted ? all.filter((one) => [endName(one.client), endName(one.server), one.client.owner, one.server.owner, one.client.address, one.server.address, port(one.protocol, one.port), one.application, one.rule].some((part) => part?.toLowerCase().includes(wanted))) : all;
  }, [read.data, text]);
  return (
    <>
      <div class="row wrap">
        <input id="traffic-filter" class="field" type="search" placeholder="Filter" aria-label="Filter conversations" value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <input class="field" placeholder="Namespace" aria-label="Namespace" value={asked.namespace ?? ""} onChange={(event) => setQuery({ ns: event.currentTarget.value })} />
        <select class="select" aria-label="Verdict" value={asked.verdict ?? ""} onChange={(event) => setQuery({ verdict: event.currentTarget.value })}>
          <option value="">every verdict</option>
          {["allowed", "discovered", "violates", "unjudged"].map((word) => <option key={word} value={word}>{word}</option>)}
        </select>
        <label class="row"><input type="checkbox" class="check" checked={asked.external === "true"} onChange={(event) => setQuery({ external: event.currentTarget.checked ? "true" : null })} /> With the outside</label>
        {asked.group && <button type="button" class="button" onClick={() => setQuery({ group: null })}>Group {asked.group} ✕</button>}
        {read.data && (
          <span class="muted number">
            {read.data.matched.toLocaleString("en")} conversations, {read.data.totals.sessions.toLocaleString("en")} sessions, {bytes(read.data.totals.bytes)}
            {read.data.matched > read.data.conversations.length ? `; the latest ${read.data.conversations.length.toLocaleString("en")} are shown` : ""}
          </span>
        )}
      </div>
      <Loaded of={read}>
        {() => (
          <VirtualTable<ConversationLine>
            label="Conversations"
            columns={COLUMNS}
            count={rows.length}
            row={(index) => rows[index]}
            rowKey={(one) => JSON.stringify([one.client.address, one.server.address, one.protocol, one.port, one.folded])}
            at={Math.min(at, Math.max(0, rows.length - 1))}
            onAt={setAt}
            version={rows}
          >
            {rows.length === 0 && <Empty title="No conversation fits"><p>Agents report some seconds after something was said. As root, Fairlead on one machine watches that machine's own connections.</p></Empty>}
          </VirtualTable>
        )}
      </Loaded>
    </>
  );
}
