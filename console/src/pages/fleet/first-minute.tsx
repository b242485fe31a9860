/**
 * The first minute, on a machine without a cluster: what this machine says to others, what this process
 * does right now, and how to add a cluster.
 */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Conversations, Inflight } from "../../api/schema";
import { decimal, rich, t } from "../../language";
import { Loaded } from "../../parts/problem";
import { ShortTable } from "../../parts/table";
import { Age, duration } from "../../parts/time";
import { find } from "../../routes";

export function FirstMinute({ hint, onAdd }: { hint: string | null; onAdd: (() => void) | null }) {
  return (
    <>
      <section class="dropzone" aria-label={t("Add a cluster")}>
        <h2>{t("No cluster yet")}</h2>
        <p class="muted break">{hint ?? t("Fairlead picks up the clusters of your kubeconfig at its start.")}</p>
        {onAdd ? (
          <>
            <p>{t("Drop a kubeconfig anywhere on this page, or")}</p>
            <button type="button" class="button primary" onClick={onAdd}>{t("Add a cluster")}</button>
          </>
        ) : (
          <p>{t("Ask an administrator to add one, or for a role that lets you see those that there are.")}</p>
        )}
        <p class="muted small">{rich("On the command line: {code}", { code: <code>fairlead clusters add NAME --kubeconfig FILE</code> })}</p>
      </section>
      <div class="first">
        <Talking />
        <Doing />
        <section class="card">
          <header><h2>{t("Something is stuck, and not here?")}</h2></header>
          <div class="body stack">
            <p>
              {t("The doctor reads goroutine dumps, logs and metrics of any program, and says who waits for whom. It needs no cluster.")}
            </p>
            {find("/doctor") && <p><a class="button" href="/doctor">{t("Drop a dump")}</a></p>}
            <p class="muted small">{rich("On the command line: {code}", { code: <code class="break">fairlead doctor DUMP…</code> })}</p>
          </div>
        </section>
      </div>
    </>
  );
}

function Talking() {
  const talks = useFetch("conversations", (signal) => api.get<Conversations>("/guard/conversations", { query: { limit: 12 }, signal }), 3000);
  const name = (end: Conversations["conversations"][number]["client"]) => end.name || end.address;
  return (
    <section class="card">
      <header><h2 class="grow">{t("This machine's conversations")}</h2>{find("/traffic") && <a href="/traffic">{t("Traffic")}</a>}</header>
      <div class="body stack">
        {talks.problem?.code === "not-served" || talks.problem?.status === 404 ? (
          <p class="muted">{rich("This process watches no connections. Started as root, {code} watches this machine's.", { code: <code>fairlead up</code> })}</p>
        ) : (
          <Loaded of={talks}>
            {({ conversations, matched }) =>
              conversations.length ? (
                <>
                  <ShortTable
                    label={t("Conversations")}
                    rows={conversations}
                    rowKey={(one) => `${one.client.address} ${one.client.name} ${one.server.address} ${one.server.name} ${one.port ?? ""} ${one.protocol ?? ""}`}
                    columns={[
                      { id: "client", title: t("From"), width: "minmax(90px, 1fr)", cell: ({ client }) => <span title={client.address}>{name(client)}</span> },
                      { id: "server", title: t("To"), width: "minmax(90px, 1fr)", cell: ({ server }) => <span title={server.address}>{name(server)}</span> },
                      { id: "port", title: t("Port"), width: "84px", cell: ({ port, protocol }) => [protocol, port].filter(Boolean).join(" ") },
                      { id: "bytes", title: t("Bytes"), width: "80px", end: true, cell: ({ bytes }) => bytesText(bytes) },
                      { id: "last", title: t("Last"), width: "64px", end: true, cell: ({ last }) => <Age time={last} /> },
                    ]}
                  />
                  <p class="muted small">{matched > conversations.length ? t("{count} of {matched}, the latest first", { count: conversations.length, matched }) : ""}</p>
                </>
              ) : (
                <p class="muted">{t("None was seen yet. Open a page elsewhere, and it appears here.")}</p>
              )
            }
          </Loaded>
        )}
      </div>
    </section>
  );
}

export function bytesText(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let value = bytes;
  let unit = -1;
  do {
    value /= 1000;
    unit++;
  } while (value >= 1000 && unit < units.length - 1);
  return `${value < 10 ? decimal(value) : Math.round(value)} ${units[unit] ?? ""}`;
}

interface Operation {
  id?: number;
  kind?: string;
  key?: string;
  tenant?: string;
  step?: string;
  ageMs?: number;
  age_ms?: number;
}

function Doing() {
  const flight = useFetch("inflight", (signal) => api.get<Inflight>("/inflight", { query: { limit: 12 }, signal }), 2000);
  return (
    <section class="card">
      <header><h2 class="grow">{t("What this process does right now")}</h2>{find("/now") && <a href="/now">{t("Now")}</a>}</header>
      <div class="body stack">
        <Loaded of={flight}>
          {({ operations }) => (
            <ShortTable
              label={t("Operations in flight")}
              rows={operations as Operation[]}
              rowKey={(one) => JSON.stringify([one.id, one.kind, one.key, one.tenant])}
              columns={[
                { id: "kind", title: t("Operation"), width: "minmax(90px, 1fr)", cell: ({ kind }) => kind },
                { id: "key", title: t("About"), width: "minmax(90px, 1.4fr)", cell: ({ key, tenant }) => <span title={tenant}>{key}</span> },
                { id: "step", title: t("Step"), width: "minmax(70px, 1fr)", cell: ({ step }) => <span class="muted">{step}</span> },
                { id: "age", title: t("For"), width: "70px", end: true, cell: (one) => { const ms = one.ageMs ?? one.age_ms; return ms === undefined ? "" : duration(ms); } },
              ]}
            />
          )}
        </Loaded>
        <p class="muted small">{t("Everything that takes time is on this ledger: kind, key, step, and what it waits for.")}</p>
      </div>
    </section>
  );
}
