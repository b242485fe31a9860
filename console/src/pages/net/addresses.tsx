/** Which pod of a cluster has which address, and of which block it is. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Address, Addresses as Answer } from "../../api/schema";
import { clusters } from "../../fleet";
import { t } from "../../language";
import { Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { object } from "../../places";
import { query, setQuery } from "../../router";

/** More are not read by anybody: the filter narrows them down. */
const SHOWN = 200;

export function Addresses() {
  const ready = clusters.value.filter(({ state }) => state === "ready").map(({ name }) => name);
  const cluster = query.value.get("cluster") ?? ready[0] ?? "";
  const text = query.value.get("address") ?? "";
  const read = useFetch(cluster ? `addresses ${cluster}` : null, (signal) => api.get<Answer>("/net/addresses", { signal, query: { cluster } }));
  if (!cluster) return null;
  const columns: TableColumn<Address>[] = [
    { id: "address", title: t("Address"), width: "minmax(120px, 1fr)", cell: ({ address }) => <span class="mono">{address}</span> },
    { id: "pod", title: "Pod", width: "minmax(180px, 2fr)", cell: ({ namespace, pod }) => <a class="clip" href={object({ cluster, kind: "pods", namespace, name: pod })}>{namespace}/{pod}</a> },
    { id: "node", title: "Node", width: "minmax(120px, 1fr)", cell: ({ node }) => node },
    { id: "pool", title: t("Pool"), width: "minmax(90px, .7fr)", cell: ({ pool }) => pool ?? <span class="faint">{t("none")}</span> },
    { id: "block", title: t("Block"), width: "minmax(150px, 1.2fr)", wrap: true, cell: ({ block, misplaced }) => <>{block}{misplaced && <span class="warn-text"> {t("of another node")}</span>}</> },
  ];
  return (
    <section class="card" aria-label={t("Addresses")}>
      <header>
        <h2>{t("Addresses")}</h2>
        <select class="select" aria-label={t("Cluster")} value={cluster} onChange={(event) => setQuery({ cluster: event.currentTarget.value })}>
          {(ready.includes(cluster) ? ready : [cluster, ...ready]).map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter addresses")} value={text} onInput={(event) => setQuery({ address: event.currentTarget.value })} />
      </header>
      <Loaded of={read}>
        {({ addresses }) => {
          const shown = addresses.filter((one) => [one.address, one.namespace, one.pod, one.node, one.pool, one.block].some((part) => part?.includes(text)));
          return shown.length ? (
            <>
              <ShortTable label={t("Addresses")} columns={columns} rows={shown.slice(0, SHOWN)} rowKey={({ address, namespace, pod }) => `${address} ${namespace}/${pod}`} />
              {shown.length > SHOWN && <p class="body muted">{t("The first {SHOWN} of {count} are shown.", { SHOWN, count: shown.length })}</p>}
            </>
          ) : (
            <p class="body muted">{addresses.length ? t("The filter hides them.") : t("No pod that you may see has an address.")}</p>
          );
        }}
      </Loaded>
    </section>
  );
}
