/** Reading something for a component: once, again on demand, and abandoned when the component goes. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiProblem, asProblem, isAbort } from "./problem";

export interface Fetched<T> {
  /** The newest answer; kept while the next one is under way. */
  data: T | undefined;
  /** Why the newest try failed. */
  problem: ApiProblem | undefined;
  loading: boolean;
  reload: () => void;
}

/**
 * Reads again whenever `key` changes; a `null` key reads nothing. With `everyMs` it reads again after
 * each answer, as long as the tab can be seen.
 */
export function useFetch<T>(key: string | null, read: (signal: AbortSignal) => Promise<T>, everyMs?: number): Fetched<T> {
  const [state, setState] = useState<{ key: string | null; data?: T | undefined; problem?: ApiProblem | undefined; loading: boolean }>({
    key,
    loading: key !== null,
  });
  const [round, setRound] = useState(0);
  const reader = useRef(read);
  reader.current = read;

  useEffect(() => {
    if (key === null) {
      setState({ key, loading: false });
      return;
    }
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const once = async () => {
      setState((old) => (old.key === key ? { ...old, loading: true } : { key, loading: true }));
      try {
        const data = await reader.current(abort.signal);
        if (!abort.signal.aborted) setState({ key, data, loading: false });
      } catch (error) {
        if (abort.signal.aborted || isAbort(error)) return;
        setState((old) => ({ key, data: old.key === key ? old.data : undefined, problem: asProblem(error), loading: false }));
      }
      if (everyMs && !abort.signal.aborted) timer = setTimeout(next, everyMs);
    };
    const next = () => {
      if (document.visibilityState === "hidden") {
        document.addEventListener("visibilitychange", next, { once: true, signal: abort.signal });
      } else void once();
    };
    void once();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, round, everyMs]);

  const current = state.key === key;
  return {
    data: current ? state.data : undefined,
    problem: current ? state.problem : undefined,
    loading: current ? state.loading : key !== null,
    reload: () => setRound((old) => old + 1),
  };
}
