/** The revisions of a workload, and the way back to one of them. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Loaded } from "../../parts/problem";
import { ShortTable } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast } from "../../parts/toast";
import type { ObjectPlace } from "../../places";

interface WorkloadRevision {
  revision: number;
  /** The ReplicaSet or ControllerRevision that keeps it. */
  name: string;
  created?: string;
  images: string[];
  cause?: string;
  current: boolean;
}

interface WorkloadRevisions {
  revisions: WorkloadRevision[];
}

export function Revisions({ place, mayUpdate }: { place: ObjectPlace; mayUpdate: boolean }) {
  const route = path`/clusters/${place.cluster}/resources/${place.kind}/${place.name}`;
  const read = useFetch(`${route}/revisions ${place.namespace ?? ""}`, (signal) =>
    api.get<WorkloadRevisions>(`${route}/revisions`, { query: { namespace: place.namespace }, signal }),
  );
  const rollBack = ({ revision, images }: WorkloadRevision) =>
    confirm({
      title: t("Roll {name} back to revision {revision}?", { name: place.name, revision }),
      text: <><p>{t("Its pods are replaced by those of that revision, by the strategy of the workload.")}</p>{images.length ? <p class="mono muted break">{images.join(", ")}</p> : null}</>,
      verb: t("Roll back"),
      danger: true,
      name: place.name,
      run: async () => {
        await api.post(`${route}/rollback`, { revision }, { query: { namespace: place.namespace } });
        toast(t("{name} goes back to revision {revision}.", { name: place.name, revision }));
        read.reload();
      },
    });
  return (
    <Loaded of={read}>
      {({ revisions }) =>
        revisions.length ? (
          <ShortTable
            label={t("Revisions")}
            rows={[...revisions].sort((a, b) => b.revision - a.revision)}
            rowKey={({ revision }) => String(revision)}
            columns={[
              { id: "revision", title: t("Revision"), width: "84px", end: true, cell: ({ revision }) => revision },
              { id: "age", title: t("Age"), width: "84px", end: true, cell: ({ created }) => <Age time={created} /> },
              { id: "images", title: t("Images"), width: "minmax(220px, 2fr)", wrap: true, cell: ({ images }) => <span class="mono">{images.join(", ")}</span> },
              { id: "cause", title: t("Cause"), width: "minmax(140px, 1fr)", wrap: true, cell: ({ cause, name }) => cause ?? <span class="faint">{name}</span> },
              {
                id: "do",
                title: <span class="hidden">{t("Actions")}</span>,
                width: "120px",
                end: true,
                cell: (revision) =>
                  revision.current ? <span class="tag ok">{t("current")}</span> : mayUpdate ? <button type="button" class="button" onClick={() => rollBack(revision)}>{t("Roll back…")}</button> : null,
              },
            ]}
          />
        ) : (
          <p class="muted">{t("No revision is kept.")}</p>
        )
      }
    </Loaded>
  );
}
