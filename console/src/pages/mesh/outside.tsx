/** Machines outside of clusters that a mesh lets in. */
import { api, path } from "../../api/client";
import { useCan } from "../../api/session";
import type { Mesh } from "../../api/schema";
import { t } from "../../language";
import { confirm } from "../../parts/dialog";
import { ShortTable, type TableColumn } from "../../parts/table";
import { toast } from "../../parts/toast";

interface ExternalPeer {
  name: string;
  publicKey: string;
  addresses: string[];
  networks?: string[];
}

export function Outside({ mesh }: { mesh: Mesh }) {
  const [mayRevoke] = useCan([{ cluster: "-", resource: "clustermeshes.fairlead.dev/peers", verb: "delete" }]);
  const peers = (mesh.spec as { externalPeers?: ExternalPeer[] }).externalPeers ?? [];
  if (peers.length === 0) return null;
  const revoke = ({ name }: ExternalPeer) =>
    confirm({
      title: t("Let {name} in no longer?", { name }),
      text: t("Every cluster of {name} forgets its key. Its configuration does not work again; a new one is made with fairlead mesh peer add.", { name: mesh.name }),
      verb: t("Revoke"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/meshes/${mesh.namespace}/${mesh.name}/peers/${name}`);
        toast(t("{name} is let in no longer.", { name }));
      },
    });
  const columns: TableColumn<ExternalPeer>[] = [
    { id: "name", title: t("Machine"), width: "minmax(130px, 1fr)", cell: ({ name }) => name },
    { id: "addresses", title: t("Addresses"), width: "minmax(140px, 1fr)", cell: ({ addresses }) => <span class="mono clip">{addresses.join(", ")}</span> },
    { id: "networks", title: t("Networks behind it"), width: "minmax(140px, 1fr)", cell: ({ networks }) => <span class="mono clip">{(networks ?? []).join(", ")}</span> },
    { id: "key", title: t("Public key"), width: "minmax(140px, 1.4fr)", cell: ({ publicKey }) => <span class="mono clip" title={publicKey}>{publicKey}</span> },
    ...(mayRevoke ? [{ id: "revoke", title: <span class="hidden">{t("Actions")}</span>, width: "96px", end: true, cell: (peer: ExternalPeer) => <button type="button" class="button quiet" aria-label={t("Revoke {name}", { name: peer.name })} onClick={() => revoke(peer)}>{t("Revoke")}</button> }] : []),
  ];
  return (
    <>
      <header>
        <h3>{t("Machines outside of clusters")}</h3>
        <span class="faint number">{peers.length}</span>
      </header>
      <ShortTable label={t("Machines outside of {name}", { name: mesh.name })} columns={columns} rows={peers} rowKey={({ name }) => name} />
    </>
  );
}
