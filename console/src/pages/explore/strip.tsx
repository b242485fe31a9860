/** Says of each cluster whether it answered, how long it took, and why not. */
import { cluster, clusterTone } from "../../fleet";
import { locale, t } from "../../language";
import type { ClusterState } from "../../live/protocol";
import { age, latency, now } from "../../parts/time";
import { clusterPage } from "../../places";

/** More clusters than this that are well are counted, not named. */
const NAMED = 6;

const TONES: Record<ClusterState["state"], string> = {
  live: "ok", connecting: "warn", stale: "warn", unreachable: "bad", forbidden: "bad", refused: "bad",
};

export function Strip({ names, states, counts }: { names: string[]; states: Record<string, ClusterState>; counts: Record<string, number> }) {
  const well = names.filter((name) => states[name]?.state === "live");
  const others = names.filter((name) => states[name]?.state !== "live");
  const many = well.length > NAMED;
  if (names.length === 1 && well.length === 1 && names[0]) {
    return <div class="strip" aria-label={t("Clusters")}><Live name={names[0]} state={states[names[0]]} /></div>;
  }
  return (
    <div class="strip" aria-label={t("Clusters")}>
      {many ? (
        <span class="one"><span class="dot ok" />{t("{count} clusters answer", { count: well.length })}</span>
      ) : (
        well.map((name) => <Live key={name} name={name} state={states[name]} count={counts[name]} />)
      )}
      {others.map((name) => <Other key={name} name={name} state={states[name]} count={counts[name]} />)}
    </div>
  );
}

function Live({ name, state, count }: { name: string; state: ClusterState | undefined; count?: number | undefined }) {
  return (
    <span class="one">
      <span class="dot ok" />
      <span class="clip">{name}</span>
      {state?.latencyMs !== undefined && <span class="faint number">{latency(state.latencyMs)}</span>}
      {count !== undefined && <span class="faint number">{count.toLocaleString(locale)}</span>}
    </span>
  );
}

function Other({ name, state, count }: { name: string; state: ClusterState | undefined; count: number | undefined }) {
  const known = cluster(name);
  // Until the subscription says something of its own, the fleet knows best.
  const word = state?.state ?? known?.state ?? "connecting";
  const tone = state ? TONES[state.state] : clusterTone(word);
  const since = state?.since ?? known?.since;
  const why = state?.why ?? known?.why ?? "";
  const next = state?.nextTryAt ?? known?.nextTry;
  const seconds = next ? Math.ceil((Date.parse(next) - now.value) / 1000) : 0;
  return (
    <span class="one" title={why}>
      <span class={`dot ${tone}`} />
      <a href={clusterPage(name)} class="clip">{name}</a>
      <span class={tone === "bad" ? "bad-text" : "warn-text"}>
        {word}
        {since ? ` ${age(since, now.value)}` : ""}
      </span>
      {word === "stale" && count !== undefined && <span>{t("{count} rows kept", { count: count.toLocaleString(locale) })}</span>}
      {why && <span class="clip" style={{ maxWidth: "56ch" }}>{why}</span>}
      {seconds > 0 && <span class="faint">{t("next try {seconds} s", { seconds })}</span>}
    </span>
  );
}
