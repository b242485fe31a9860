/** Sets the taints of a node: all of them, as the API server has them. */
import { signal } from "@preact/signals";
import { api } from "../api/client";
import type { NodeTaint, NodeTaints } from "../api/schema";
import { t } from "../language";
import { confirm } from "../parts/dialog";
import { toast } from "../parts/toast";
import type { ObjectPlace } from "../places";
import { EFFECTS } from "../usage";
import { route } from "./actions";

export function setTaints(place: ObjectPlace, present: NodeTaint[], then: () => void): void {
  const taints = signal<NodeTaint[]>(present.map((taint) => ({ ...taint })));
  confirm({
    title: t("Taints of {name}", { name: place.name }),
    text: <p>{t("Pods that do not tolerate a taint are not scheduled here; NoExecute also evicts those that run.")}</p>,
    fields: <Rows taints={taints} />,
    wide: true,
    verb: t("Set taints"),
    run: async () => {
      const wanted = taints.value.filter(({ key }) => key.trim());
      const { taints: set } = await api.put<NodeTaints>(route(place, "/taints"), { taints: wanted.map(({ key, value, effect }) => ({ key: key.trim(), effect, ...(value ? { value } : {}) })) });
      toast(set.length ? t("{name} has {count} Taints.", { name: place.name, count: set.length }) : t("{name} has no taint.", { name: place.name }));
      then();
    },
  });
}

function Rows({ taints }: { taints: { value: NodeTaint[] } }) {
  const change = (at: number, part: Partial<NodeTaint>) => {
    taints.value = taints.value.map((taint, index) => (index === at ? { ...taint, ...part } : taint));
  };
  return (
    <div class="stack">
      {taints.value.map((taint, at) => (
        <div key={at} class="row taint-row">
          <input class="field grow" aria-label={t("Key")} placeholder="key" required value={taint.key} onInput={(event) => change(at, { key: event.currentTarget.value })} />
          <input class="field" aria-label={t("Value")} placeholder="value" value={taint.value ?? ""} onInput={(event) => change(at, { value: event.currentTarget.value })} />
          <select class="select" aria-label={t("Effect")} value={taint.effect} onChange={(event) => change(at, { effect: event.currentTarget.value })}>
            {EFFECTS.map((effect) => <option key={effect} value={effect}>{effect}</option>)}
          </select>
          <button type="button" class="button quiet" aria-label={t("Remove {key}", { key: taint.key || t("the taint") })} onClick={() => { taints.value = taints.value.filter((_, index) => index !== at); }}>✕</button>
        </div>
      ))}
      {taints.value.length === 0 && <p class="muted">{t("It has none.")}</p>}
      <div class="row"><button type="button" class="button" onClick={() => { taints.value = [...taints.value, { key: "", effect: "NoSchedule" }]; }}>{t("Add a taint")}</button></div>
    </div>
  );
}
