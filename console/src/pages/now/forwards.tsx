/** Port-forwards that are open: who has them, to which pod, since when, how much went through. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { rich, t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast } from "../../parts/toast";
import { object } from "../../places";
import { bytes } from "../traffic/ends";

interface Forward {
  id: number;
  /** The other replica that has it. */
  replica?: string;
  user: string;
  via: string;
  cluster: string;
  namespace: string;
  pod: string;
  port?: number;
  since: string;
  bytesToPod: number;
  bytesFromPod: number;
}

export function Forwards() {
  const read = useFetch("forwards", (signal) => api.get<{ forwards: Forward[]; missing?: { replica: string; why: string }[] }>("/forwards", { signal }), 3000);
  const end = ({ id, replica, user, pod, namespace }: Forward) =>
    confirm({
      title: t("End the port-forward to {pod}?", { pod }),
      text: t("{user} loses the connection to {namespace}/{pod} at once, and is told who ended it.", { user, namespace, pod }),
      verb: t("End"),
      danger: true,
      run: async () => {
        await api.delete(path`/forwards/${String(id)}`, replica ? { query: { replica } } : {});
        toast(t("The port-forward to {pod} was ended.", { pod }));
        read.reload();
      },
    });
  const columns: TableColumn<Forward>[] = [
    { id: "since", title: t("For"), width: "84px", end: true, cell: ({ since }) => <Age time={since} /> },
    { id: "user", title: t("Who"), width: "minmax(110px, .8fr)", cell: ({ user, via }) => <span title={via}>{user}</span> },
    { id: "pod", title: "Pod", width: "minmax(200px, 2fr)", cell: ({ cluster, namespace, pod }) => <a href={object({ cluster, kind: "pods", namespace, name: pod })} title={t("{namespace}/{pod} of {cluster}", { namespace, pod, cluster })}>{namespace}/{pod}</a> },
    { id: "port", title: t("Port"), width: "80px", end: true, cell: ({ port }) => port ?? <span class="muted" title={t("kubectl names the ports within its connection")}>kubectl</span> },
    { id: "cluster", title: t("Cluster"), width: "minmax(110px, 1fr)", cell: ({ cluster }) => cluster },
    { id: "sent", title: t("To the pod"), width: "100px", end: true, cell: ({ bytesToPod }) => bytes(bytesToPod) },
    { id: "received", title: t("From it"), width: "100px", end: true, cell: ({ bytesFromPod }) => bytes(bytesFromPod) },
    { id: "end", title: <span class="hidden">{t("Actions")}</span>, width: "72px", end: true, cell: (one) => <button type="button" class="button quiet" aria-label={t("End the port-forward to {pod}", { pod: one.pod })} onClick={() => end(one)}>{t("End")}</button> },
  ];
  return (
    <section class="card" aria-label={t("Port-forwards")}>
      <header>
        <h2>{t("Port-forwards")}</h2>
        <span class="faint number">{read.data?.forwards.length ?? ""}</span>
      </header>
      <Loaded of={read}>
        {({ forwards, missing }) => (
          <>
            {missing?.map(({ replica, why }) => <p key={replica} class="body muted break">{t("Those through {replica} are missing: {why}", { replica, why })}</p>)}
            {forwards.length ? (
              <ShortTable label={t("Port-forwards")} columns={columns} rows={forwards} rowKey={({ id, replica }) => `${replica ?? ""} ${id}`} />
            ) : (
              <p class="body muted">{rich("None is open. {code} opens one, and so does kubectl with a kubeconfig of Fairlead.", { code: <code>fairlead forward</code> })}</p>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}
