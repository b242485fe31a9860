/** Images: what scanners found, what is signed, and which findings do not count. Reports are handed in by drop. */
import { useRef, useState } from "preact/hooks";
import { api } from "../../api/client";
import type { ImportedDocuments } from "../../api/schema";
import { useCan } from "../../api/session";
import { t } from "../../language";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { toast, toastProblem } from "../../parts/toast";
import { query } from "../../router";
import { ExceptionsTab } from "./exceptions";
import { ImageDetail } from "./image";
import { ImagesTab } from "./list";
import "./images.css";

const TABS: Tab[] = [
  { id: "images", title: t("Images") },
  { id: "exceptions", title: t("Exceptions") },
];

export default function Images() {
  const tab = tabOf(TABS);
  const image = query.value.get("image");
  const [round, setRound] = useState(0);
  const [over, setOver] = useState(false);
  const [mayImport] = useCan([{ cluster: "-", resource: "imagereports.fairlead.dev", verb: "create" }]);
  const chosen = useRef<HTMLInputElement>(null);
  const take = async (files: FileList | null | undefined) => {
    for (const file of [...(files ?? [])]) {
      try {
        const { documents } = await api.upload<ImportedDocuments>("POST", "/images/import", await file.text(), "application/json");
        const older = documents.filter(({ written }) => !written);
        toast(t("{name}: {what} of {count} taken.{what2}", { name: file.name, what: documents.length - older.length, count: documents.length, what2: older[0]?.why ? ` ${older[0].name}: ${older[0].why}.` : "" }), older.length ? "info" : "ok");
      } catch (error) {
        toastProblem(error, file.name);
      }
    }
    setRound((old) => old + 1);
  };
  const drops = mayImport
    ? {
        onDragOver: (event: DragEvent) => { event.preventDefault(); setOver(true); },
        onDragLeave: (event: DragEvent) => { if (event.currentTarget === event.target) setOver(false); },
        onDrop: (event: DragEvent) => { event.preventDefault(); setOver(false); void take(event.dataTransfer?.files); },
      }
    : {};
  return (
    <div class={`page images${over ? " dropping" : ""}`} {...drops}>
      <header>
        <h1>{t("Images")}</h1>
        <span class="grow" />
        {mayImport && (
          <>
            <button type="button" class="button" onClick={() => chosen.current?.click()}>{t("Hand in reports…")}</button>
            <input ref={chosen} type="file" hidden multiple accept=".json,.yaml,.yml" aria-label={t("Reports")} onChange={(event) => { void take(event.currentTarget.files); event.currentTarget.value = ""; }} />
          </>
        )}
      </header>
      <Tabs label={t("Parts of images")} tabs={TABS} />
      {tab === "exceptions" ? <ExceptionsTab key={round} /> : image ? <ImageDetail key={`${image} ${round}`} image={image} /> : <ImagesTab key={round} mayImport={mayImport ?? false} />}
    </div>
  );
}
