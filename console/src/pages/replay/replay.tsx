/** The incidents, replayed: what the old design and Fairlead did under the same load and the same fault. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
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
  { id: "ok", title: "", width: "70px", cell: ({ ok }) => <span class={ok ? "ok-text" : "bad-text"}>{ok ? "holds" : "fails"}</span> },
  { id: "name", title: "What must hold", width: "minmax(240px, 3fr)", wrap: true, cell: ({ name }) => name },
  { id: "limit", title: "Limit", width: "150px", end: true, cell: ({ relation, limit, unit }) => `${relation} ${said(limit)} ${unit}` },
  { id: "value", title: "Measured", width: "130px", end: true, cell: ({ value, unit }) => (value === null ? "not measured" : `${said(value)} ${unit}`) },
];

const said = (value: number): string => (Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(3));
const milliseconds = (value: number | null): string => (value === null ? "–" : value < 1000 ? `${said(Math.round(value * 10) / 10)} ms` : `${(value / 1000).toFixed(1)} s`);

export default function Replay() {
  const read = useFetch("replay", (signal) => api.get<{ results: Kept[] }>("/replay", { signal }));
  return (
    <div class="page">
      <header><h1>Replay</h1>{read.data && <span class="muted number">{read.data.results.length}</span>}</header>
      <Loaded of={read}>
        {({ results }) =>
          results.length ? (
            <>{results.map((one) => <One key={one.name} kept={one} />)}</>
          ) : (
            <Empty title="No incident was replayed here">
              <p>Five public incidents can be replayed on this machine, each against a model of the old design and against Fairlead's own code.</p>
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
    ["refused with a time to come back", ({ refused }) => said(refused)],
    ["most in flight", ({ mostInFlight }) => said(mostInFlight)],
    ["still in flight at the end", ({ inFlight }) => said(inFlight)],
    ["p99", ({ p99Ms }) => milliseconds(p99Ms)],
    ["peak memory", ({ peakMemoryBytes }) => memory(peakMemoryBytes)],
    ["ended", ({ stopped, seconds }) => stopped ?? `after ${seconds.toFixed(1)} s`],
  ];
  return (
    <section class="card" aria-label={`Replay of ${name}`}>
      <header>
        <span class={`tag ${result.void ? "warn" : result.ok ? "ok" : "bad"}`}>{result.void ? "void" : result.ok ? "holds" : "fails"}</span>
        <h2 class="grow">{result.incident || name}</h2>
        <span class="muted small">seed {result.seed}, scale {result.scale}{at && <>, <Age time={at} ago /></>}</span>
      </header>
      <div class="body replay">
        <table>
          <thead><tr><th scope="col">Under the same load and fault</th><th scope="col">old design</th><th scope="col">Fairlead</th></tr></thead>
          <tbody>{figures.map(([title, say]) => <tr key={title}><th scope="row">{title}</th><td>{say(result.old)}</td><td>{say(result.new)}</td></tr>)}</tbody>
        </table>
        <Timelines result={result} />
      </div>
      <ShortTable label={`What must hold in ${name}`} columns={COLUMNS} rows={result.requirements} rowKey={({ name }) => name} />
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
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 4}`} role="img" aria-label={`In flight over ${(last / 1000).toFixed(0)} seconds: the old design up to ${said(Math.max(0, ...result.old.timeline.map(({ inFlight }) => inFlight)))}, Fairlead up to ${said(Math.max(0, ...result.new.timeline.map(({ inFlight }) => inFlight)))}`}>
        <path class="axis" d={`M0 ${HEIGHT}H${WIDTH}`} />
        <path class="old" d={line(result.old)} />
        <path class="new" d={line(result.new)} />
      </svg>
      <figcaption class="small muted">In flight over {(last / 1000).toFixed(0)} s, up to {said(most)}: <span class="bad-text">old design</span>, <span class="accent-text">Fairlead</span></figcaption>
    </figure>
  );
}
