/** What an object has to do with others: who owns, selects, uses, routes to and scales it, and the other way. */
import { useEffect, useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Kind } from "../../api/schema";
import { findKind, kindPath, kindsOf } from "../../fleet";
import { t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { wordTone } from "../../parts/tone";
import { mapAround, object as objectHref, type ObjectPlace } from "../../places";

interface RelatedObject {
  relation: string;
  apiVersion: string;
  kind: string;
  namespace?: string;
  name: string;
  status?: string;
  via?: string;
}

interface RelatedAnswer {
  related: RelatedObject[];
  leftOut: string[];
  problems?: string[];
}

/** In this order; the words are what this object says of the other. */
const RELATIONS: Record<string, string> = {
  owner: t("is owned by"),
  owned: t("owns"),
  "selected-by": t("is selected by"),
  selects: t("selects"),
  uses: t("uses"),
  "used-by": t("is used by"),
  "routed-by": t("is reached through"),
  "routes-to": t("routes to"),
  "scaled-by": t("is scaled by"),
  scales: t("scales"),
};

/** Where an object of a kind lives: its kind's name in addresses is not in the answer. */
export function useKinds(cluster: string): Kind[] {
  const [kinds, setKinds] = useState<Kind[]>([]);
  useEffect(() => {
    let gone = false;
    void kindsOf(cluster).then((found) => !gone && setKinds(found), () => {});
    return () => {
      gone = true;
    };
  }, [cluster]);
  return kinds;
}

export function hrefOf(kinds: Kind[], cluster: string, fallback: string | null | undefined, of: { apiVersion: string; kind: string; namespace?: string | null; name: string }): string | null {
  const group = of.apiVersion.includes("/") ? (of.apiVersion.split("/")[0] as string) : "";
  const found = kinds.find((one) => one.kind === of.kind && one.group === group) ?? findKind(kinds, of.kind.toLowerCase());
  return found ? objectHref({ cluster, kind: kindPath(found), namespace: found.namespaced ? (of.namespace ?? fallback) : null, name: of.name }) : null;
}

export function Related({ place }: { place: ObjectPlace }) {
  const kinds = useKinds(place.cluster);
  const route = path`/clusters/${place.cluster}/resources/${place.kind}/${place.name}/related`;
  const read = useFetch(`${route} ${place.namespace ?? ""}`, (signal) => api.get<RelatedAnswer>(route, { query: { namespace: place.namespace }, signal }), 20_000);
  const order = Object.keys(RELATIONS);
  const kind = findKind(kinds, place.kind)?.kind;
  const columns: TableColumn<RelatedObject>[] = [
    { id: "relation", title: `${place.name} …`, width: "minmax(130px, .8fr)", cell: ({ relation }) => <span class="muted">{RELATIONS[relation] ?? relation}</span> },
    { id: "kind", title: t("Kind"), width: "minmax(140px, .8fr)", cell: ({ kind }) => kind },
    {
      id: "name",
      title: t("Name"),
      width: "minmax(180px, 2fr)",
      cell: (one) => {
        const to = hrefOf(kinds, place.cluster, place.namespace, one);
        return to ? <a href={to} title={one.name}>{one.name}</a> : <span title={one.name}>{one.name}</span>;
      },
    },
    { id: "via", title: t("How"), width: "minmax(120px, 1fr)", cell: ({ via }) => <span class="muted" title={via}>{via}</span> },
    { id: "status", title: t("Status"), width: "minmax(110px, .8fr)", cell: ({ status }) => status && <span class={wordTone(status) === "bad" ? "bad-text" : wordTone(status) === "warn" ? "warn-text" : ""}>{status}</span> },
  ];
  return (
    <Loaded of={read}>
      {({ related, leftOut, problems }) => (
        <>
          {(problems ?? []).map((text) => <div key={text} class="notice warn"><p class="break">{text}</p></div>)}
          {related.length ? (
            <ShortTable label={t("Related objects")} columns={columns} rows={[...related].sort((a, b) => order.indexOf(a.relation) - order.indexOf(b.relation))} rowKey={(one) => `${one.relation} ${one.kind} ${one.namespace} ${one.name} ${one.via}`} />
          ) : (
            <Empty title={t("Nothing is related")}><p>{t("Nobody owns, selects, uses or routes to it, and it does so to nobody.")}</p></Empty>
          )}
          {place.namespace && kind && <p><a href={mapAround(place.cluster, place.namespace, `${kind}/${place.name}`)}>{t("As a map")}</a></p>}
          {leftOut.length > 0 && <p class="muted small">{t("Your roles do not let you list {leftOut}: there may be more.", { leftOut: leftOut.join(", ") })}</p>}
        </>
      )}
    </Loaded>
  );
}
