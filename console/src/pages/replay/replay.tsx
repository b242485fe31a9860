/** The incidents, replayed: what the old design and Fairlead did under the same load and the same fault. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { decimal, locale, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { memory } from "../../usage";
import "./replay.css";

interface Sample {
  atMs: number;
  inFlight: number;
}

interface Design {
  stopped?: string | null;
  seconds: number;
  answered: number;
  refused: number;
  failed: number;
  inFlight: number;
  mostInFlight: number;
  p99Ms: number | null;
  peakMemoryBytes: number;
  named: unknown;
  notes?: string[];
  timeline: Sample[];
}

interface Requirement {
  name: string;
  relation: string;
  limit: number;
  value: number | null;
  unit: string;
  ok: boolean;
}

interface Result {
  incident: string;
  seed: number;
  scale: number;
  version?: string;
  old: Design;
  new: Design;
  requirements: Requirement[];
  void?: string | boolean | null;
  ok: boolean;
}

interface Kept {
  name: string;
  at?: string;
  result: Result;
}

const COLUMNS: TableColumn<Requirement>[] = [
  { id: "ok", title: "", width: "70px", cell: ({ ok }) => <span class={ok ? "ok-text" : "bad-text"}>{ok ? t("holds") : t("fails")}</span> },
  { id: "name", title: t("What must hold"), width: "minmax(240px, 3fr)", wrap: true, cell: ({ name }) => name },
  { id: "limit", title: t("Limit"), width: "150px", end: true, cell: ({ relation, limit, unit }) => `${relation} ${said(limit)} ${unit}` },
  { id: "value", title: t("Measured"), width: "130px", end: true, cell: ({ value, unit }) => (value === null ? t("not measured") : `${said(value)} ${unit}`) },
];

const said = (value: number): string => (Number.isInteger(value) ? value.toLocaleString(locale) : value.toPrecision(3));
const milliseconds = (value: number | null): string => (value === null ? "–" : value < 1000 ? `${said(Math.round(value * 10) / 10)} ms` : `${decimal(value / 1000)} s`);

export default function Replay() {
  const read = useFetch("replay", (signal) => api.get<{ results: Kept[] }>("/replay", { signal }));
  return (
    <div class="page">
      <header><h1>{t("Replay")}</h1>{read.data && <span class="muted number">{read.data.results.length}</span>}</header>
      <Loaded of={read}>
        {({ results }) =>
          results.length ? (
            <>{results.map((one) => <One key={one.name} kept={one} />)}</>
          ) : (
            <Empty title={t("No incident was replayed here")}>
              <p>{t("Five public incidents can be replayed on this machine, each against a model of the old design and against Fairlead's own code.")}</p>
              <p><code>fairlead replay cni-burst</code></p>
            </Empty>
          )
        }
      </Loaded>
    </div>
  );
}

function One({ kept: { name, at, result } }: { kept: Kept }) {
  const figures: [string, (design: Design) => string][] = [
    ["answered", ({ answered }) => said(answered)],
    [t("refused with a time to come back"), ({ refused }) => said(refused)],
    [t("most in flight"), ({ mostInFlight }) => said(mostInFlight)],
    [t("still in flight at the end"), ({ inFlight }) => said(inFlight)],
    ["p99", ({ p99Ms }) => milliseconds(p99Ms)],
    [t("peak memory"), ({ peakMemoryBytes }) => memory(peakMemoryBytes)],
    ["ended", ({ stopped, seconds }) => stopped ?? t("after {seconds} s", { seconds: decimal(seconds) })],
  ];
  return (
    <section class="card" aria-label={t("Replay of {name}", { name })}>
      <header>
        <span class={`tag ${result.void ? "warn" : result.ok ? "ok" : "bad"}`}>{result.void ? t("void") : result.ok ? t("holds") : t("fails")}</span>
        <h2 class="grow">{result.incident || name}</h2>
        <span class="muted small">{t("seed {seed}, scale {scale}", { seed: result.seed, scale: result.scale })}{at && <>, <Age time={at} ago /></>}</span>
      </header>
      <div class="body replay">
        <table>
          <thead><tr><th scope="col">{t("Under the same load and fault")}</th><th scope="col">{t("old design")}</th><th scope="col">Fairlead</th></tr></thead>
          <tbody>{figures.map(([title, say]) => <tr key={title}><th scope="row">{title}</th><td>{say(result.old)}</td><td>{say(result.new)}</td></tr>)}</tbody>
        </table>
        <Timelines result={result} />
      </div>
      <ShortTable label={t("What must hold in {name}", { name })} columns={COLUMNS} rows={result.requirements} rowKey={({ name }) => name} />
    </section>
  );
}

const [WIDTH, HEIGHT] = [420, 150];

/** In flight over time, both designs on one axis. */
function Timelines({ result }: { result: Result }) {
  const designs = [result.old, result.new];
  const last = Math.max(1, ...designs.flatMap(({ timeline }) => timeline.map(({ atMs }) => atMs)));
  const most = Math.max(1, ...designs.flatMap(({ timeline }) => timeline.map(({ inFlight }) => inFlight)));
  const line = ({ timeline }: Design) => timeline.map(({ atMs, inFlight }, index) => `${index ? "L" : "M"}${((atMs / last) * WIDTH).toFixed(1)} ${(HEIGHT - (inFlight / most) * (HEIGHT - 8)).toFixed(1)}`).join("");
  return (
    <figure>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 4}`} role="img" aria-label={t("In flight over {what} seconds: the old design up to {said}, Fairlead up to {said2}", { what: (last / 1000).toFixed(0), said: said(Math.max(0, ...result.old.timeline.map(({ inFlight }) => inFlight))), said2: said(Math.max(0, ...result.new.timeline.map(({ inFlight }) => inFlight))) })}>
        <path class="axis" d={`M0 ${HEIGHT}H${WIDTH}`} />
        <path class="old" d={line(result.old)} />
        <path class="new" d={line(result.new)} />
      </svg>
      <figcaption class="small muted">{t("In flight over {what} s, up to {said}:", { what: (last / 1000).toFixed(0), said: said(most) })}{" "}<span class="bad-text">{t("old design")}</span>, <span class="accent-text">Fairlead</span></figcaption>
    </figure>
  );
}
