/** A look at one row beside the table, without leaving it. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Description } from "../../api/schema";
import { t } from "../../language";
import { Cross } from "../../parts/icons";
import { Loaded } from "../../parts/problem";
import { object } from "../../places";
import { Overview } from "../object/overview";

export function Peek({ kind, of, onClose }: { kind: string; of: string; onClose: () => void }) {
  const [cluster = "", namespace = "", ...rest] = of.split("/");
  const name = rest.join("/");
  const place = { cluster, kind, namespace: namespace || null, name };
  const described = useFetch(of, (signal) =>
    api.get<Description>(path`/clusters/${cluster}/resources/${kind}/${name}/describe`, { query: { namespace }, signal }),
  );
  return (
    <aside class="peek" aria-label={t("About {name}", { name })}>
      <header>
        <div class="grow">
          <h2 class="clip" title={name}><a href={object(place)}>{name}</a></h2>
          <p class="muted small clip">{[cluster, namespace].filter(Boolean).join(" / ")}</p>
        </div>
        {kind === "pods" && <a class="button" href={object(place, { tab: "logs" })}>{t("Logs")}</a>}
        <a class="button" href={object(place, { tab: "yaml" })}>YAML</a>
        <button type="button" class="button quiet icon" aria-label={t("Close")} onClick={onClose}><Cross /></button>
      </header>
      <div class="body">
        <Loaded of={described}>{(data) => <Overview place={place} description={data} />}</Loaded>
      </div>
    </aside>
  );
}
