/** Chooses clusters for the page at hand. A dead cluster is a line with its reason, and can be chosen. */
import { useState } from "preact/hooks";
import { clusters, clusterTone, fleet } from "../fleet";
import { t } from "../language";
import { selection, withClusters } from "../nav";
import { ALL } from "../places";
import { navigate } from "../router";
import { Check, Down } from "./icons";
import { Popover } from "./popover";

export function ClusterChooser() {
  const chosen = selection();
  const all = chosen.includes(ALL);
  const names = all ? clusters.value.map(({ name }) => name) : chosen;
  const bad = clusters.value.filter(({ name, state }) => names.includes(name) && clusterTone(state) === "bad").length;
  const label = all
    ? fleet.value
      ? t("All clusters ({count})", { count: clusters.value.length })
      : t("All clusters")
    : chosen.length === 1
      ? (chosen[0] as string)
      : t("{count} clusters", { count: chosen.length });
  const single = chosen.length === 1 && !all ? clusters.value.find(({ name }) => name === chosen[0]) : undefined;
  return (
    <Popover
      class="button chooser-button"
      title={all ? "" : chosen.join(", ")}
      label={
        <>
          <span class={`dot ${single ? clusterTone(single.state) : bad ? "warn" : "ok"}`} />
          <span class="clip">{label}</span>
          <Down size={12} />
        </>
      }
    >
      {(close) => <Choices close={close} chosen={chosen} />}
    </Popover>
  );
}

function Choices({ close, chosen }: { close: () => void; chosen: string[] }) {
  const [text, setText] = useState("");
  const all = chosen.includes(ALL);
  const shown = clusters.value.filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  const go = (next: string[]) => navigate(withClusters(next.length ? next : [ALL]));
  const only = (name: string) => {
    go([name]);
    close();
  };
  const toggle = (name: string) => {
    const now = all ? [] : chosen;
    go(now.includes(name) ? now.filter((one) => one !== name) : [...now, name]);
  };
  return (
    <div class="stack" style={{ width: "340px" }}>
      <input
        class="field"
        placeholder={t("Find a cluster")}
        aria-label={t("Find a cluster")}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && shown[0]) only(shown[0].name);
        }}
      />
      <div>
        <button
          type="button"
          class="item"
          onClick={() => {
            go([ALL]);
            close();
          }}
        >
          <span class="grow">{t("All clusters")}</span>
          {all && <Check />}
        </button>
        <hr />
        {shown.map(({ name, state, why }) => (
          <div key={name} class="row" style={{ gap: "2px" }}>
            <input
              type="checkbox"
              class="check"
              style={{ marginLeft: "9px" }}
              aria-label={t("Add {name}", { name })}
              checked={!all && chosen.includes(name)}
              onChange={() => toggle(name)}
            />
            <button type="button" class="item grow" title={why ?? ""} onClick={() => only(name)}>
              <span class={`dot ${clusterTone(state)}`} />
              <span class="clip grow">{name}</span>
              <span class="faint small">{state}</span>
            </button>
          </div>
        ))}
        {!shown.length && <p class="muted small" style={{ padding: "6px 9px" }}>{t("No cluster has this name.")}</p>}
      </div>
    </div>
  );
}
