/** The volumes of a pod or a workload: what each is, and where it is mounted. */
import { t } from "../../language";
import { Empty } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import type { ObjectPlace } from "../../places";
import type { KubeObject } from "./kube";
import { volumesOf, type VolumeLine } from "./volumes-of";

const COLUMNS: TableColumn<VolumeLine>[] = [
  { id: "name", title: t("Volume"), width: "minmax(150px, 1fr)", cell: ({ name }) => <span title={name}>{name}</span> },
  { id: "type", title: t("Type"), width: "minmax(130px, .8fr)", cell: ({ type }) => type },
  { id: "source", title: t("Of"), width: "minmax(180px, 1.4fr)", cell: ({ source, href }) => (href ? <a href={href} title={source}>{source}</a> : <span class="mono" title={source}>{source || <span class="faint">–</span>}</span>) },
  { id: "mounts", title: t("Mounted at"), width: "minmax(260px, 2.4fr)", wrap: true, cell: ({ mounts }) => (mounts.length ? mounts.map(({ container, path, readOnly, subPath }) => <p key={`${container} ${path}`}><span class="mono">{path}</span> <span class="muted">{t("in {container}{what}{what2}", { container, what: subPath ? t(", {subPath} of it", { subPath }) : "", what2: readOnly ? t(", read-only") : "" })}</span></p>) : <span class="faint">{t("by no container")}</span>) },
];

export function Volumes({ place, object }: { place: ObjectPlace; object: KubeObject }) {
  const lines = volumesOf(place, object);
  return lines.length ? <ShortTable label={t("Volumes")} columns={COLUMNS} rows={lines} rowKey={({ name }) => name} /> : <Empty title={t("No volume")}><p>{t("Its containers have their own files only, and lose them when they end.")}</p></Empty>;
}
