/** What somebody, or a role, may really do: what its rules add up to, by cluster and resource. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { EffectiveRights } from "../../api/schema";
import { t } from "../../language";
import { Dialog } from "../../parts/dialog";
import { Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { byClusters } from "./by-clusters";

type Line = ReturnType<typeof byClusters>[number];

const clusterWord = (cluster: string): string => (cluster === "-" ? t("the fleet itself") : cluster);

/** Every verb that there is, in one word: a list of thirteen is not read. */
const verbsText = (verbs: string[]): string => (verbs.length >= 13 ? "everything" : verbs.join(", "));

const COLUMNS: TableColumn<Line>[] = [
  { id: "resource", title: t("Resource"), width: "minmax(170px, 1.2fr)", cell: ({ resource }) => <span title={resource}>{resource}</span> },
  { id: "everywhere", title: t("In every namespace"), width: "minmax(180px, 1.6fr)", wrap: true, cell: ({ everywhere }) => verbsText(everywhere) || <span class="faint">–</span> },
  { id: "somewhere", title: t("In some namespaces"), width: "minmax(160px, 1.4fr)", wrap: true, cell: ({ somewhere }) => <span class="muted">{verbsText(somewhere)}</span> },
  { id: "clusters", title: t("Clusters"), width: "minmax(130px, 1fr)", wrap: true, cell: ({ clusters }) => clusters.map(clusterWord).join(", ") },
];

export function EffectiveDialog({ of, route, onClose }: { of: string; route: string; onClose: () => void }) {
  const [text, setText] = useState("");
  const read = useFetch(route, (signal) => api.get<EffectiveRights>(route, { signal }));
  return (
    <Dialog title={t("What {of} may do", { of })} wide onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); onClose(); }}>
        <h1 class="break">{t("What {of} may do", { of })}</h1>
        <Loaded of={read}>
          {({ rights }) => {
            const wanted = text.toLowerCase();
            const rows = byClusters(rights.filter(({ cluster, resource, everywhere, somewhere }) => !wanted || [cluster, resource, ...everywhere, ...(somewhere ?? [])].some((part) => part.toLowerCase().includes(wanted))));
            return rights.length ? (
              <>
                <input class="field" type="search" placeholder={t("Filter: secrets, exec, eu")} aria-label={t("Filter rights")} value={text} onInput={(event) => setText(event.currentTarget.value)} />
                <div class="rights"><ShortTable label={t("Rights of {of}", { of })} columns={COLUMNS} rows={rows} rowKey={(row) => JSON.stringify(row)} /></div>
              </>
            ) : (
              <p class="muted">{t("Nothing.")}</p>
            );
          }}
        </Loaded>
        <footer><button type="submit" class="button primary">{t("Close")}</button></footer>
      </form>
    </Dialog>
  );
}
