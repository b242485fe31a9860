/** A part whose code is fetched when it is opened. */
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { t } from "../../language";
import { Loading, ProblemNotice } from "../../parts/problem";

export function Lazy<P extends object>({ load, props }: { load: () => Promise<{ default: ComponentType<P> }>; props: P }) {
  const [part, setPart] = useState<{ of: ComponentType<P> } | { failed: true } | null>(null);
  useEffect(() => {
    let gone = false;
    load().then(
      (module) => !gone && setPart({ of: module.default }),
      () => !gone && setPart({ failed: true }),
    );
    return () => {
      gone = true;
    };
  }, []);
  if (!part) return <Loading />;
  if ("failed" in part) return <ProblemNotice problem={new Error(t("this part of the page could not be loaded: load the page again"))} again={() => location.reload()} />;
  const Part = part.of;
  return <Part {...props} />;
}
