/** A search of many clusters: what each one found is there as soon as it answers. */
import { useEffect, useState } from "preact/hooks";
import { api } from "./api/client";
import { ApiProblem, asProblem, isAbort } from "./api/problem";
import type { AskedCluster, Found, Hit, Kind } from "./api/schema";
import { kindPath, kindsOf } from "./fleet";
import { t } from "./language";

/** How long a cluster may take: one with many thousands of pods, on a busy day. */
const PATIENCE = "30s";

export interface Searched {
  /** How many clusters are asked, and those that have answered or were given up. */
  asked: number;
  clusters: AskedCluster[];
  /** In the order in which they came; the best first once all have come. */
  hits: Hit[];
  truncated: boolean;
  incomplete: NonNullable<Found["incomplete"]>;
  done: boolean;
}

export interface Search {
  /** None until the first cluster has answered. */
  data: Searched | undefined;
  problem: ApiProblem | undefined;
  loading: boolean;
  reload: () => void;
}

const NOTHING: Searched = { asked: 0, clusters: [], hits: [], truncated: false, incomplete: [], done: false };

/** Asks `clusters`, or all, for what has `text`; `null` asks nothing. `after` is how long it waits for the next letter. */
export function useSearch(text: string | null, clusters: string[] | null, limit: number, after = 0): Search {
  const key = text === null ? null : `${text} ${clusters?.join() ?? ""}`;
  const [state, setState] = useState<{ key: string | null; found: Searched; problem?: ApiProblem }>({ key, found: NOTHING });
  const [round, setRound] = useState(0);
  useEffect(() => {
    setState({ key, found: NOTHING });
    if (text === null) return;
    const abort = new AbortController();
    let found = NOTHING;
    const put = (change: Partial<Searched>) => {
      found = { ...found, ...change };
      setState({ key, found });
    };
    const failed = (problem: ApiProblem) => setState({ key, found: { ...found, done: true }, problem });
    const timer = setTimeout(() => {
      api
        .hear("/search", ({ event, data }) => {
          if (abort.signal.aborted) return;
          if (event === "asked") put({ asked: (data as { clusters: string[] }).clusters.length });
          else if (event === "hits") put({ hits: [...found.hits, ...(data as { hits: Hit[] }).hits] });
          else if (event === "cluster") put({ clusters: [...found.clusters, data as AskedCluster] });
          else if (event === "done") {
            const { clusters, hits, truncated, incomplete = [] } = data as Found;
            put({ clusters, hits, truncated, incomplete, done: true });
          }
        }, { query: { q: text, clusters, limit, timeout: PATIENCE }, signal: abort.signal })
        .then(
          () => found.done || abort.signal.aborted || failed(asProblem(new Error(t("the search was cut off")))),
          (error: unknown) => isAbort(error) || failed(asProblem(error)),
        );
    }, after);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, round]);
  const current = state.key === key;
  const { found, problem } = current ? state : { found: NOTHING, problem: undefined };
  return {
    data: found.clusters.length || found.done ? found : undefined,
    problem,
    loading: key !== null && !found.done,
    reload: () => setRound((old) => old + 1),
  };
}

/** The kinds of the clusters that found something, by cluster. */
export function useKinds(hits: Hit[]): Map<string, Kind[]> {
  const [kinds, setKinds] = useState(new Map<string, Kind[]>());
  const names = [...new Set(hits.map(({ cluster }) => cluster))];
  useEffect(() => {
    let gone = false;
    void Promise.all(names.map(async (name) => [name, await kindsOf(name).catch((): Kind[] => [])] as const)).then((all) => {
      if (!gone) setKinds(new Map(all));
    });
    return () => {
      gone = true;
    };
  }, [names.join()]);
  return kinds;
}

/** The kind of a hit, as addresses have it. */
export function kindOf({ cluster, apiVersion, kind }: Hit, kinds: Map<string, Kind[]>): string {
  const group = apiVersion.includes("/") ? (apiVersion.split("/")[0] as string) : "";
  const served = kinds.get(cluster)?.find((one) => one.kind === kind && one.group === group);
  return served ? kindPath(served) : kind.toLowerCase();
}
