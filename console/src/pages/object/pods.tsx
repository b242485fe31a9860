/** The pods of a workload, a Service or a node: live, as the table of pods has them. */
import { useMemo, useState } from "preact/hooks";
import { locale, rich, t } from "../../language";
import { useRows } from "../../live/live";
import type { Row, Subscription } from "../../live/protocol";
import { bodyProblem, Empty, Loading, ProblemNotice } from "../../parts/problem";
import { VirtualTable } from "../../parts/table";
import { explore, object as objectHref, type ObjectPlace } from "../../places";
import { navigate } from "../../router";
import { useUsage } from "../../usage";
import { columnsOf, rowKey } from "../explore/columns";

const NONE = new Map<string, Row>();

export default function Pods({ place, selector }: { place: ObjectPlace; selector: string | null }) {
  const { cluster, namespace, name } = place;
  const of = selector === null ? { fields: `spec.nodeName=${name}` } : { labels: selector };
  const subscription: Subscription = { topic: "rows", clusters: [cluster], kind: "pods", ...(namespace ? { namespaces: [namespace] } : {}), ...of };
  const rows = useRows(subscription, { filter: "", sort: [], only: {} });
  const { update } = rows;
  const [at, setAt] = useState(0);
  const usage = useUsage([cluster], "pods");
  const columns = useMemo(
    () =>
      columnsOf({
        columns: update.columns, wide: false, manyClusters: false, namespaced: true, oneNamespace: namespace !== null && namespace !== undefined, kind: "pods",
        picked: NONE, pick: () => {}, values: rows.values, only: {}, usage, nodes: undefined, plain: true,
      }),
    [update.columns, usage, namespace],
  );
  const open = (row: Row, tab?: string) => navigate(objectHref({ cluster, kind: "pods", namespace: row.namespace ?? null, name: row.name }, tab ? { tab } : undefined));
  return (
    <>
      {update.problem && <ProblemNotice problem={bodyProblem(update.problem)} />}
      <p class="muted small">{rich("{total} {what}. {link} filters them and acts on many.", { total: update.total.toLocaleString(locale), what: update.total === 1 ? t("pod") : t("pods"), link: <a href={explore([cluster], "pods", { ...(namespace ? { ns: namespace } : {}), ...of })}>{t("The table of pods")}</a> })}</p>
      <VirtualTable<Row>
        label="Pods"
        columns={columns}
        count={update.matched}
        row={(index) => update.rows[index - update.start]}
        rowKey={rowKey}
        onRange={rows.range}
        at={Math.min(at, Math.max(0, update.matched - 1))}
        onAt={setAt}
        onOpen={(row, event) => {
          if (!event || !(event.target as Element).closest("a, button, input")) open(row);
        }}
        version={columns}
        keys={[{ key: "l", does: t("logs of the pod"), run: (row) => open(row, "logs") }]}
      >
        {update.matched === 0 && !update.problem && (update.synced ? <Empty title={t("There are no pods")} /> : <div style={{ padding: "14px" }}><Loading lines={4} /></div>)}
      </VirtualTable>
    </>
  );
}
