/** What a pod, or a cluster as a whole, used before now: as the cluster's Prometheus has it, if one is known. */
import { api, path } from "./api/client";
import { useFetch } from "./api/fetching";
import { rich, t } from "./language";
import { Chart } from "./parts/chart";
import type { Point } from "./parts/chart-path";
import { Loaded } from "./parts/problem";
import { query, setQuery } from "./router";
import { cores, memory } from "./usage";

interface History {
  cpu: Point[];
  memory: Point[];
  from: string;
}

const RANGES: [string, string][] = [["60", t("an hour")], ["360", t("six hours")], ["1440", t("a day")], ["10080", t("a week")]];

export default function UsageHistory({ cluster, namespace, pod }: { cluster: string; namespace?: string | null; pod?: string }) {
  const minutes = query.value.get("minutes") ?? "60";
  const key = ["history", cluster, namespace ?? "", pod ?? "", minutes].join(" ");
  const read = useFetch(
    key,
    async (signal) => ({ at: Math.floor(Date.now() / 1000), ...(await api.get<History>(path`/clusters/${cluster}/usage/history`, { query: { namespace, pod, minutes }, signal })) }),
    60_000,
  );
  // Without a Prometheus there is nothing to show, and nothing wrong.
  if (read.problem?.code === "not-served" && !read.data) {
    return <p class="muted">{rich("What was used before now is known where clusters have a Prometheus: the setting {code} says where, as {code2}.", { code: <code>fleet.prometheus</code>, code2: <code>monitoring/prometheus:9090</code> })}</p>;
  }
  return (
    <div class="stack">
      <div class="row">
        <label class="row small">
          {t("The last")}
          <select class="select" value={minutes} onChange={(event) => setQuery({ minutes: event.currentTarget.value === "60" ? null : event.currentTarget.value })}>
            {RANGES.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
          </select>
        </label>
        {read.data && <span class="faint small">{t("as {from} says", { from: read.data.from })}</span>}
      </div>
      <Loaded of={read}>
        {({ at, cpu, memory: bytes }) => {
          const from = at - Number(minutes) * 60;
          return (
            <div class="charts">
              <Chart title="CPU" points={cpu} from={from} to={at} say={(value) => cores(value * 1000)} />
              <Chart title={t("Memory")} points={bytes} from={from} to={at} say={memory} />
            </div>
          );
        }}
      </Loaded>
    </div>
  );
}
