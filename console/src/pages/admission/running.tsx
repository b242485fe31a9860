/** What runs although a rule would refuse or record it now. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Running, RunningLine } from "../../api/schema";
import { locale, rich, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { href, query, setQuery } from "../../router";

const SHOWN = 500;

const COLUMNS: TableColumn<RunningLine>[] = [
  { id: "outcome", title: t("Now"), width: "104px", cell: ({ outcome }) => <span class={`tag ${outcome === "denied" ? "bad" : "warn"}`}>{outcome}</span> },
  { id: "owner", title: t("What runs"), width: "minmax(200px, 1.4fr)", wrap: true, cell: ({ owner, namespace, cluster, container }) => <span>{owner} <span class="faint">{[container, namespace, cluster].filter(Boolean).join(", ")}</span></span> },
  { id: "pods", title: "Pods", width: "64px", end: true, cell: ({ pods }) => pods.toLocaleString(locale) },
  { id: "image", title: t("Image"), width: "minmax(180px, 1.4fr)", wrap: true, cell: ({ image }) => <a class="mono" href={href("/images", { image })}>{image}</a> },
  { id: "rule", title: t("Rule"), width: "minmax(110px, .8fr)", cell: ({ rule }) => <span title={rule}>{rule}</span> },
  { id: "why", title: t("Why"), width: "minmax(200px, 2fr)", wrap: true, cell: ({ why }) => why },
  { id: "since", title: t("Known for"), width: "90px", end: true, cell: ({ since }) => <Age time={since} /> },
];

export function RunningTab() {
  const text = query.value.get("q") ?? "";
  const read = useFetch("admission running", (signal) => api.get<Running>("/admission/running", { signal }), 5000);
  return (
    <Loaded of={read}>
      {({ lines, clusters }) => {
        const shown = lines.filter((one) => !text || [one.owner, one.namespace, one.cluster, one.image, one.rule, one.why].some((part) => part.toLowerCase().includes(text.toLowerCase())));
        return (
          <>
            {lines.length > 0 && (
              <div class="row">
                <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter what runs")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
                <span class="muted number">{shown.length}{shown.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span>
              </div>
            )}
            <ul class="strip" aria-label={t("Clusters that were looked through")}>
              {clusters.map(({ cluster, judged, pods, findings, leftOut }) => (
                <li key={cluster} class="one">
                  <span class={`dot ${!judged ? "" : findings ? "warn" : "ok"}`} />
                  <span>{cluster}</span>
                  <span class="faint">{judged ? <>{rich("{pods} pods judged {age}", { pods: pods.toLocaleString(locale), age: <Age time={judged} ago /> })}</> : t("not yet looked through")}{leftOut ? t("; no room for {leftOut} more findings", { leftOut }) : ""}</span>
                </li>
              ))}
            </ul>
            {shown.length ? (
              <ShortTable label={t("What runs against the rules")} columns={COLUMNS} rows={shown.slice(0, SHOWN)} rowKey={(one) => [one.cluster, one.namespace, one.owner, one.container, one.image, one.rule].join(" ")} />
            ) : (
              <Empty title={lines.length ? t("Nothing matches") : clusters.some(({ judged }) => judged) ? t("Nothing runs against the rules") : t("No cluster was looked through yet")}>
                <p>{t("Pods are judged again when rules or what is known of images change; a rule written today finds what was started yesterday.")}</p>
                {!clusters.length && <p>{rich("The pods of the cluster that Fairlead runs in, or that {setting} names, are judged. {link} tries a manifest against the rules now.", { setting: <code>guard.cluster</code>, link: <a href={href("/admission", { tab: "try" })}>{t("The playground")}</a> })}</p>}
              </Empty>
            )}
          </>
        );
      }}
    </Loaded>
  );
}
