/** What can be done with one cluster: test, enable, forget kinds, remove. */
import { useEffect, useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Cluster, Tested } from "../../api/schema";
import { forgetKinds } from "../../fleet";
import { downloadKubeconfig } from "../../kubeconfig";
import { t } from "../../language";
import { confirm, Dialog } from "../../parts/dialog";
import { Dots } from "../../parts/icons";
import { Popover } from "../../parts/popover";
import { ProblemNotice } from "../../parts/problem";
import { latency } from "../../parts/time";
import { toast, toastProblem } from "../../parts/toast";
import { explore } from "../../places";

export function ClusterMenu({ cluster, mayChange, mayDelete }: { cluster: Cluster; mayChange: boolean; mayDelete: boolean }) {
  const { name, state, source } = cluster;
  const enable = (enabled: boolean) =>
    api
      .patch(path`/clusters/${name}`, { enabled })
      .then(() => toast(enabled ? t("{name} is enabled.", { name }) : t("{name} is disabled.", { name })))
      .catch((error: unknown) => toastProblem(error));
  const reset = () =>
    api
      .post(path`/clusters/${name}/kinds/reset`)
      .then(() => {
        forgetKinds(name);
        toast(t("The kinds of {name} are looked up anew.", { name }));
      })
      .catch((error: unknown) => toastProblem(error));
  const remove = () =>
    confirm({
      title: t("Remove {name}?", { name }),
      text: t("Fairlead forgets how to reach the cluster. Nothing in the cluster changes."),
      verb: t("Remove"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/clusters/${name}`);
        toast(t("{name} is removed.", { name }));
      },
    });
  return (
    <Popover class="button quiet icon" name={t("More for {name}", { name })} label={<Dots />}>
      {(close) => (
        <>
          <a class="item" href={explore([name], "pods")}>Pods</a>
          <a class="item" href={explore([name], "nodes")}>Nodes</a>
          <a class="item" href={explore([name], "namespaces")}>Namespaces</a>
          <button type="button" class="item" onClick={() => { close(); void downloadKubeconfig([name]); }}>Kubeconfig</button>
          {mayChange && (
            <>
              <hr />
              {state === "disabled" ? (
                <button type="button" class="item" onClick={() => { close(); void enable(true); }}>{t("Enable")}</button>
              ) : (
                <button type="button" class="item" onClick={() => { close(); void enable(false); }}>{t("Disable")}</button>
              )}
              <button type="button" class="item" onClick={() => { close(); void reset(); }}>{t("Forget its kinds")}</button>
            </>
          )}
          {mayDelete && /import/i.test(source) && (
            <button type="button" class="item danger" onClick={() => { close(); remove(); }}>{t("Remove…")}</button>
          )}
        </>
      )}
    </Popover>
  );
}

const STEPS: Record<string, string> = {
  resolve: t("Find the server's address"),
  connect: t("Connect"),
  tls: t("Agree on TLS"),
  version: t("Ask for its version"),
  authenticate: t("Show who we are"),
};

/** Tests a cluster on a connection of its own, and shows each step. */
export function TestDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [round, setRound] = useState(0);
  const [waited, setWaited] = useState(0);
  const tested = useFetch(`${name} ${round}`, (signal) => api.post<Tested>(path`/clusters/${name}/test`, undefined, { signal }));
  useEffect(() => {
    const begun = Date.now();
    const timer = setInterval(() => setWaited(Date.now() - begun), 250);
    return () => clearInterval(timer);
  }, [round]);
  return (
    <Dialog title={t("Test of {name}", { name })} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); onClose(); }}>
        <h1 class="break">{t("Test of {name}", { name })}</h1>
        {!tested.data && !tested.problem && <p class="muted">{t("Trying on a connection of its own… {floor} s", { floor: Math.floor(waited / 1000) })}</p>}
        {tested.problem && <ProblemNotice problem={tested.problem} />}
        {tested.data && (
          <>
            <p class={tested.data.ok ? "ok-text" : "bad-text"}>{tested.data.verdict}</p>
            <ol class="steps">
              {tested.data.steps.map(({ step, ok, tookMs, why }) => (
                <li key={step}>
                  <span class={ok ? "ok-text" : "bad-text"} aria-label={ok ? t("done") : t("failed")}>{ok ? "✓" : "✗"}</span>
                  <span>{STEPS[step] ?? step}</span>
                  <span class="muted number">{latency(tookMs)}</span>
                  {why && <span class="why break">{why}</span>}
                </li>
              ))}
            </ol>
          </>
        )}
        <footer>
          <button type="button" class="button" disabled={tested.loading} onClick={() => setRound(round + 1)}>{t("Test again")}</button>
          <button type="submit" class="button primary">{t("Close")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
