/** What was against the rules, live: none is lost or told twice when the connection breaks. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ViolationLine, Violations } from "../../api/schema";
import { locale, t } from "../../language";
import { follow } from "../../live/live";
import { Empty, Loaded } from "../../parts/problem";
import { Sentence } from "../../parts/sentence";
import { VirtualTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { query, setQuery } from "../../router";
import { bytes, End, endName, port } from "./ends";

const COLUMNS: TableColumn<ViolationLine>[] = [
  { id: "last", title: t("Last"), width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
  { id: "client", title: t("Client"), width: "minmax(180px, 1.6fr)", cell: ({ client }) => <End end={client} /> },
  { id: "server", title: t("Server"), width: "minmax(180px, 1.6fr)", cell: ({ server }) => <End end={server} /> },
  { id: "port", title: t("Port"), width: "110px", cell: (one) => port(one.protocol, one.port) },
  { id: "rule", title: t("Rule"), width: "minmax(140px, 1fr)", cell: ({ rule }) => rule ?? <span class="muted">{t("no rule allows it")}</span> },
  { id: "stopped", title: t("Was"), width: "100px", cell: ({ enforced }) => (enforced ? <span class="tag bad">{t("stopped")}</span> : <span class="tag warn">{t("reported")}</span>) },
  { id: "sessions", title: t("Sessions"), width: "90px", end: true, cell: ({ sessions }) => sessions.toLocaleString(locale) },
  { id: "bytes", title: t("Bytes"), width: "90px", end: true, cell: (one) => bytes(one.bytes) },
];

function keyOf(one: ViolationLine): string {
  return JSON.stringify([one.client.address, one.server.address, one.protocol, one.port, one.rule, one.application]);
}

export function ViolationsTab() {
  const text = query.value.get("q") ?? "";
  const [at, setAt] = useState(0);
  const [live, setLive] = useState(new Map<string, ViolationLine>());
  const read = useFetch("violations", (signal) => api.get<Violations>("/guard/violations", { query: { limit: 2000 }, signal }));
  const reload = useRef(read.reload);
  reload.current = read.reload;
  useEffect(
    () =>
      follow({ topic: "violations" }, (message) => {
        if (message.type !== "data") return;
        const { violations = [], lost } = message.data as { violations?: ViolationLine[]; lost?: boolean };
        // More came than the server keeps for who was away: all of them are read again.
        if (lost) reload.current();
        setLive((old) => {
          const next = new Map(old);
          violations.forEach((one) => next.set(keyOf(one), one));
          return next;
        });
      }),
    [],
  );
  const rows = useMemo(() => {
    const all = new Map((read.data?.violations ?? []).map((one) => [keyOf(one), one]));
    live.forEach((one, key) => {
      if (one.change >= (all.get(key)?.change ?? 0)) all.set(key, one);
    });
    const wanted = text.toLowerCase();
    return [...all.values()]
      .filter((one) => !wanted || [endName(one.client), endName(one.server), one.rule, port(one.protocol, one.port)].some((part) => part?.toLowerCase().includes(wanted)))
      .sort((a, b) => b.change - a.change);
  }, [read.data, live, text]);
  return (
    <>
      <div class="row wrap">
        <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter violations")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <span class="muted number">{rows.length.toLocaleString(locale)}</span>
        {read.data?.enforcement && <Sentence text={read.data.enforcement} />}
        {(read.data?.missed ?? 0) > 0 && <span class="warn-text">{t("{missed} came faster than they were written down.", { missed: read.data?.missed.toLocaleString(locale) })}</span>}
      </div>
      <Loaded of={read}>
        {() => (
          <VirtualTable<ViolationLine> label={t("Violations")} columns={COLUMNS} count={rows.length} row={(index) => rows[index]} rowKey={keyOf} at={Math.min(at, Math.max(0, rows.length - 1))} onAt={setAt} version={rows}>
            {rows.length === 0 && <Empty title={t("Nothing was against the rules")}><p>{t("Groups in the modes monitor and protect are judged; in discover, Fairlead learns.")}</p></Empty>}
          </VirtualTable>
        )}
      </Loaded>
    </>
  );
}
