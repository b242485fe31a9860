/** Port-forwards that are open: who has them, to which pod, since when, how much went through. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { confirm } from "../../parts/dialog";
import { Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast } from "../../parts/toast";
import { object } from "../../places";
import { bytes } from "../traffic/ends";

interface Forward {
  id: number;
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
  const read = useFetch("forwards", (signal) => api.get<{ forwards: Forward[] }>("/forwards", { signal }), 3000);
  const end = ({ id, user, pod, namespace }: Forward) =>
    confirm({
      title: `End the port-forward to ${pod}?`,
      text: `${user} loses the connection to ${namespace}/${pod} at once, and is told who ended it.`,
      verb: "End",
      danger: true,
      run: async () => {
        await api.delete(path`/forwards/${String(id)}`);
        toast(`The port-forward to ${pod} was ended.`);
        read.reload();
      },
    });
  const columns: TableColumn<Forward>[] = [
    { id: "since", title: "For", width: "84px", end: true, cell: ({ since }) => <Age time={since} /> },
    { id: "user", title: "Who", width: "minmax(110px, .8fr)", cell: ({ user, via }) => <span title={via}>{user}</span> },
    { id: "pod", title: "Pod", width: "minmax(200px, 2fr)", cell: ({ cluster, namespace, pod }) => <a href={object({ cluster, kind: "pods", namespace, name: pod })} title={`${namespace}/${pod} of ${cluster}`}>{namespace}/{pod}</a> },
    { id: "port", title: "Port", width: "80px", end: true, cell: ({ port }) => port ?? <span class="muted" title="kubectl names the ports within its connection">kubectl</span> },
    { id: "cluster", title: "Cluster", width: "minmax(110px, 1fr)", cell: ({ cluster }) => cluster },
    { id: "sent", title: "To the pod", width: "100px", end: true, cell: ({ bytesToPod }) => bytes(bytesToPod) },
    { id: "received", title: "From it", width: "100px", end: true, cell: ({ bytesFromPod }) => bytes(bytesFromPod) },
    { id: "end", title: <span class="hidden">Actions</span>, width: "72px", end: true, cell: (one) => <button type="button" class="button quiet" aria-label={`End the port-forward to ${one.pod}`} onClick={() => end(one)}>End</button> },
  ];
  return (
    <section class="card" aria-label="Port-forwards">
      <header>
        <h2>Port-forwards</h2>
        <span class="faint number">{read.data?.forwards.length ?? ""}</span>
      </header>
      <Loaded of={read}>
        {({ forwards }) =>
          forwards.length ? (
            <ShortTable label="Port-forwards" columns={columns} rows={forwards} rowKey={({ id }) => String(id)} />
          ) : (
            <p class="body muted">None is open. <code>fairlead forward</code> opens one, and so does kubectl with a kubeconfig of Fairlead.</p>
          )
        }
      </Loaded>
    </section>
  );
}
