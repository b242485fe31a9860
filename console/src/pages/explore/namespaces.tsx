/** Chooses namespaces: none is all that one may see, several are asked for by their names. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { t } from "../../language";
import { Check, Down } from "../../parts/icons";
import { Popover } from "../../parts/popover";

interface Namespaces {
  namespaces: (string | { name: string })[];
}

/** Names are asked of this many clusters at most; others are typed. */
const ASKED = 12;

export function NamespaceChooser(props: { clusters: string[]; chosen: string[]; onChoose: (chosen: string[]) => void }) {
  const { chosen } = props;
  const label = !chosen.length ? t("All namespaces") : chosen.length === 1 ? (chosen[0] as string) : t("{count} namespaces", { count: chosen.length });
  return (
    <Popover class="button" title={chosen.join(", ")} label={<><span class="clip" style={{ maxWidth: "200px" }}>{label}</span><Down size={12} /></>}>
      {(close) => <Choices {...props} close={close} />}
    </Popover>
  );
}

function Choices({ clusters, chosen, onChoose, close }: { clusters: string[]; chosen: string[]; onChoose: (chosen: string[]) => void; close: () => void }) {
  const [text, setText] = useState("");
  const asked = clusters.slice(0, ASKED);
  const found = useFetch(asked.join(","), async (signal) => {
    const answers = await Promise.allSettled(
      asked.map((name) => api.get<Namespaces>(path`/clusters/${name}/namespaces`, { signal, query: { timeout: "3s" } })),
    );
    const names = answers.flatMap((answer) =>
      answer.status === "fulfilled" ? answer.value.namespaces.map((one) => (typeof one === "string" ? one : one.name)) : [],
    );
    return [...new Set(names)].sort();
  });
  const names = [...new Set([...chosen, ...(found.data ?? [])])];
  const shown = names.filter((name) => name.includes(text));
  const toggle = (name: string) => onChoose(chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]);
  const only = (name: string) => {
    onChoose([name]);
    close();
  };
  return (
    <div class="stack" style={{ width: "280px" }}>
      <input
        class="field"
        placeholder={t("Find or type a namespace")}
        aria-label={t("Find or type a namespace")}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && text) only(shown[0] ?? text);
        }}
      />
      <div class="choices">
        <button type="button" class="item" onClick={() => { onChoose([]); close(); }}>
          <span class="grow">{t("All that I may see")}</span>
          {!chosen.length && <Check />}
        </button>
        {shown.slice(0, 300).map((name) => (
          <div key={name} class="row" style={{ gap: "2px" }}>
            <input type="checkbox" class="check" style={{ marginLeft: "9px" }} aria-label={t("Add {name}", { name })} checked={chosen.includes(name)} onChange={() => toggle(name)} />
            <button type="button" class="item grow" onClick={() => only(name)}><span class="clip">{name}</span></button>
          </div>
        ))}
        {found.loading && !found.data && <p class="muted small" style={{ padding: "6px 9px" }}>{t("Asking…")}</p>}
        {text && !shown.length && <button type="button" class="item" onClick={() => only(text)}>{t("Use “{text}”", { text })}</button>}
      </div>
    </div>
  );
}
