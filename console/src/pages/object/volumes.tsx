/** The volumes of a pod or a workload: what each is, and where it is mounted. */
import { Empty } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import type { ObjectPlace } from "../../places";
import type { KubeObject } from "./kube";
import { volumesOf, type VolumeLine } from "./volumes-of";

const COLUMNS: TableColumn<VolumeLine>[] = [
  { id: "name", title: "Volume", width: "minmax(150px, 1fr)", cell: ({ name }) => <span title={name}>{name}</span> },
  { id: "type", title: "Type", width: "minmax(130px, .8fr)", cell: ({ type }) => type },
  { id: "source", title: "Of", width: "minmax(180px, 1.4fr)", cell: ({ source, href }) => (href ? <a href={href} title={source}>{source}</a> : <span class="mono" title={source}>{source || <span class="faint">–</span>}</span>) },
  { id: "mounts", title: "Mounted at", width: "minmax(260px, 2.4fr)", wrap: true, cell: ({ mounts }) => (mounts.length ? mounts.map(({ container, path, readOnly, subPath }) => <p key={`${container} ${path}`}><span class="mono">{path}</span> <span class="muted">in {container}{subPath ? `, ${subPath} of it` : ""}{readOnly ? ", read-only" : ""}</span></p>) : <span class="faint">by no container</span>) },
];

export function Volumes({ place, object }: { place: ObjectPlace; object: KubeObject }) {
  const lines = volumesOf(place, object);
  return lines.length ? <ShortTable label="Volumes" columns={COLUMNS} rows={lines} rowKey={({ name }) => name} /> : <Empty title="No volume"><p>Its containers have their own files only, and lose them when they end.</p></Empty>;
}
