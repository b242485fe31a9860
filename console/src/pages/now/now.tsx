/**
 * What this process does at this moment: everything in flight, who waits for whom, locks and stalls.
 * The page that is opened when something is slow.
 */
import { useMemo } from "preact/hooks";
import { useKeys } from "../../keys";
import { locale, rich, t } from "../../language";
import { useTopic } from "../../live/live";
import { bodyProblem, Empty, Loading, ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { duration } from "../../parts/time";
import { query, setQuery } from "../../router";
import { Forwards } from "./forwards";
import "./now.css";

interface Operation {
  id: number;
  kind: string;
  key: string;
  tenant: string;
  age_ms: number;
  step: string;
  step_age_ms: number;
  waits_on: { what: string; holder: number | null; holder_doing: string | null } | null;
  late: boolean;
}

interface Held {
  holder: string;
  held_ms: number | null;
  waiting: number;
  waiter: string | null;
  waiting_ms: number | null;
}

interface Lock {
  class: string;
  instances: number;
  acquisitions: number;
  contended: number;
  waiting: number;
  held: Held[];
}

interface Chain {
  waiter: number;
  what: string;
  chain: number[];
  cycle?: boolean;
}

interface Now {
  at: string;
  inFlight: number;
  byKind: { kind: string; inFlight: number }[];
  operations: Operation[];
  locks: Lock[];
  stalls: { name: string; critical: boolean; stalledMs: number; failsLiveness: boolean }[];
  holders: Chain[];
}

/** Past this many rows the table is cut, and says so. */
const SHOWN = 200;

export default function NowPage() {
  const { data, problem } = useTopic<Now>({ topic: "inflight" });
  const text = query.value.get("q") ?? "";
  const kind = query.value.get("kind");
  useKeys([{ key: "/", does: t("filter"), run: () => document.getElementById("now-filter")?.focus() }]);
  return (
    <div class="page">
      <header>
        <h1>{t("Now")}</h1>
        {data && <span class="muted number">{t("{inFlight} in flight", { inFlight: data.inFlight.toLocaleString(locale) })}</span>}
        <input
          id="now-filter"
          class="field"
          type="search"
          placeholder={t("Filter")}
          aria-label={t("Filter operations")}
          value={text}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
        {data?.byKind.filter(({ inFlight }) => inFlight > 0).map((one) => (
          <button key={one.kind} type="button" class="button quiet" aria-pressed={kind === one.kind} onClick={() => setQuery({ kind: kind === one.kind ? null : one.kind })}>
            {one.kind} <span class="faint number">{one.inFlight}</span>
          </button>
        ))}
      </header>
      {problem && <ProblemNotice problem={bodyProblem(problem)} />}
      {!data ? !problem && <Loading lines={6} /> : <Shown now={data} text={text} kind={kind} />}
      {(data || problem) && <Forwards />}
    </div>
  );
}

function Shown({ now, text, kind }: { now: Now; text: string; kind: string | null }) {
  const byId = useMemo(() => new Map(now.operations.map((one) => [one.id, one])), [now]);
  const wanted = text.toLowerCase();
  const matching = now.operations.filter(
    (one) => (!kind || one.kind === kind) && (!wanted || [one.kind, one.key, one.tenant, one.step, one.waits_on?.what].some((part) => part?.toLowerCase().includes(wanted))),
  );
  const held = now.locks.filter((lock) => lock.waiting > 0);
  return (
    <>
      {now.stalls.map((stall) => (
        <div key={stall.name} class={`notice ${stall.critical ? "bad" : "warn"}`} role="alert">
          <p>
            {rich("{name} makes no progress for {duration}{what}", { name: <strong>{stall.name}</strong>, duration: duration(stall.stalledMs), what: stall.failsLiveness ? t("; the process will be restarted, its evidence is on disk.") : "." })}
          </p>
        </div>
      ))}
      {now.holders.length > 0 && (
        <section class="card" aria-label={t("Who waits for whom")}>
          <header>
            <h2>{t("Who waits for whom")}</h2>
            <span class="faint number">{now.holders.length}</span>
          </header>
          <ul class="chains">
            {now.holders.slice(0, 50).map((one) => (
              <li key={one.waiter} class={one.cycle ? "cycle" : ""}>
                <Name of={byId.get(one.waiter)} id={one.waiter} />
                {one.chain.map((id, index) => (
                  <span key={id} class="link">
                    <span class="muted">{index === 0 ? t("waits for {what}, held by", { what: one.what }) : t("which waits for")}</span> <Name of={byId.get(id)} id={id} />
                  </span>
                ))}
                {one.cycle && <span class="tag bad">{t("a circle: nobody in it will move")}</span>}
              </li>
            ))}
          </ul>
        </section>
      )}
      {held.length > 0 && (
        <section class="card" aria-label={t("Locks that are waited for")}>
          <header>
            <h2>{t("Locks that are waited for")}</h2>
          </header>
          <ShortTable label={t("Locks that are waited for")} columns={lockColumns} rows={held.flatMap((lock) => lock.held.filter(({ waiting }) => waiting > 0).map((one) => ({ ...one, class: lock.class })))} rowKey={(one) => one.class + one.holder} />
        </section>
      )}
      <section class="card" aria-label={t("In flight")}>
        <header>
          <h2>{t("In flight, the oldest first")}</h2>
          <span class="faint number">{matching.length !== now.operations.length ? t("{count} of {count2}", { count: matching.length, count2: now.operations.length }) : now.operations.length}</span>
        </header>
        {matching.length ? (
          <ShortTable label={t("In flight")} columns={operationColumns} rows={matching.slice(0, SHOWN)} rowKey={({ id }) => String(id)} />
        ) : (
          <Empty title={now.operations.length ? t("The filter hides them") : t("Nothing is in flight")} />
        )}
        {matching.length > SHOWN && <p class="body muted">{t("{what} younger ones are not shown.", { what: matching.length - SHOWN })}</p>}
      </section>
      <section class="card" aria-label={t("Locks")}>
        <header>
          <h2>{t("Locks since the start")}</h2>
        </header>
        <ShortTable label={t("Locks since the start")} columns={allLockColumns} rows={[...now.locks].sort((a, b) => b.contended - a.contended)} rowKey={(lock) => lock.class} />
      </section>
    </>
  );
}

function Name({ of, id }: { of: Operation | undefined; id: number }) {
  if (!of) return <span class="faint">{t("operation {id}", { id })}</span>;
  return (
    <span class="mono" title={t("{tenant}, in {step} for {duration}", { tenant: of.tenant, step: of.step, duration: duration(of.step_age_ms) })}>
      {of.kind} {of.key}
    </span>
  );
}

/** A kind of the core group is known by its name alone: `pods` for `pods.v1.`. */
const plainKey = (key: string): string => key.replace(/^([a-z0-9-]+)\.v\d+[a-z0-9]*\.(?= |$)/, "$1");

const operationColumns: TableColumn<Operation>[] = [
  { id: "age", title: t("For"), width: "84px", end: true, cell: ({ age_ms, late }) => <span class={late ? "bad-text" : ""}>{duration(age_ms)}</span> },
  { id: "kind", title: t("Operation"), width: "minmax(110px, .8fr)", cell: ({ kind, late }) => <span>{kind}{late && <span class="tag bad late">{t("late")}</span>}</span> },
  { id: "key", title: t("About"), width: "minmax(200px, 2.4fr)", cell: ({ key }) => <span class="mono" title={key}>{plainKey(key)}</span> },
  { id: "tenant", title: t("For whom"), width: "minmax(110px, .8fr)", cell: ({ tenant }) => tenant },
  { id: "step", title: t("Step"), width: "minmax(150px, 1.2fr)", cell: ({ step, step_age_ms }) => <span>{step} <span class="faint">{duration(step_age_ms)}</span></span> },
  { id: "waits", title: t("Waits for"), width: "minmax(160px, 1.8fr)", wrap: true, cell: ({ waits_on }) => waits_on && <span>{waits_on.what}{waits_on.holder_doing && <span class="muted">{t(", held by {holder_doing}", { holder_doing: waits_on.holder_doing })}</span>}</span> },
];

const lockColumns: TableColumn<Held & { class: string }>[] = [
  { id: "class", title: t("Lock"), width: "minmax(140px, 1fr)", cell: (one) => <span class="mono">{one.class}</span> },
  { id: "holder", title: t("Taken at"), width: "minmax(220px, 2fr)", cell: ({ holder }) => <span class="mono" title={holder}>{holder}</span> },
  { id: "held", title: t("Held for"), width: "90px", end: true, cell: ({ held_ms }) => (held_ms === null ? "" : duration(held_ms)) },
  { id: "waiting", title: t("Waiting"), width: "80px", end: true, cell: ({ waiting }) => waiting },
  { id: "waiter", title: t("Longest waits at"), width: "minmax(220px, 2fr)", cell: ({ waiter, waiting_ms }) => waiter && <span class="mono" title={waiter}>{waiter} <span class="faint">{waiting_ms === null ? "" : duration(waiting_ms)}</span></span> },
];

const allLockColumns: TableColumn<Lock>[] = [
  { id: "class", title: t("Lock"), width: "minmax(180px, 2fr)", cell: (one) => <span class="mono">{one.class}</span> },
  { id: "instances", title: t("Instances"), width: "100px", end: true, cell: ({ instances }) => instances.toLocaleString(locale) },
  { id: "taken", title: t("Taken"), width: "120px", end: true, cell: ({ acquisitions }) => acquisitions.toLocaleString(locale) },
  { id: "contended", title: t("Had to wait"), width: "120px", end: true, cell: ({ contended }) => contended.toLocaleString(locale) },
  { id: "held", title: t("Held now"), width: "100px", end: true, cell: ({ held }) => held.length || "" },
];
