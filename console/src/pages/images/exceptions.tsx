/** Exceptions: findings that do not count, for which images, until when, and why. */
import { signal } from "@preact/signals";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { ImportedDocuments } from "../../api/schema";
import { useCan } from "../../api/session";
import { rich, t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { toast } from "../../parts/toast";

interface Exception {
  name: string;
  spec: { name: string; days?: number; domains?: string[]; images?: string[]; packages?: string[]; until?: string; reason?: string; comment?: string };
  ended: boolean;
}

const DAY = 24 * 60 * 60 * 1000;

/** An object's name made of what it is about. */
function nameFor(vulnerability: string): string {
  const base = vulnerability.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60);
  return `${base || "exception"}-${Date.now().toString(36)}`;
}

/** Asks why and for how long, and writes an exception. */
export function except(vulnerability: string, image: string, then: () => void): void {
  const asked = signal({ only: true, days: "90", reason: "" });
  confirm({
    title: t("Except {vulnerability}?", { vulnerability }),
    text: t("It counts for nothing in rules on scan results while the exception lasts. It is still shown, as excepted."),
    fields: (
      <div class="stack">
        <label class="label">{t("Why")}<input class="field" required maxLength={500} autofocus onInput={(event) => { asked.value = { ...asked.value, reason: event.currentTarget.value }; }} /></label>
        <label class="label">
          {t("For how long")}
          <select class="select" defaultValue="90" onChange={(event) => { asked.value = { ...asked.value, days: event.currentTarget.value }; }}>
            {[["14", t("two weeks")], ["30", t("30 days")], ["90", t("90 days")], ["365", t("a year")], ["", t("for ever")]].map(([days, text]) => <option key={days} value={days}>{text}</option>)}
          </select>
        </label>
        <label class="row"><input type="checkbox" class="check" defaultChecked onChange={(event) => { asked.value = { ...asked.value, only: event.currentTarget.checked }; }} />{" "}{rich("Only for {image}", { image: <code class="break">{image}</code> })}</label>
      </div>
    ),
    verb: t("Except"),
    run: async () => {
      const { only, days, reason } = asked.value;
      const spec = { name: vulnerability, reason, ...(only ? { images: [image] } : {}), ...(days ? { until: new Date(Date.now() + Number(days) * DAY).toISOString().replace(/\.\d+Z/, "Z") } : {}) };
      await api.upload<ImportedDocuments>("POST", "/images/import", JSON.stringify({ apiVersion: "fairlead.dev/v1alpha1", kind: "VulnerabilityException", metadata: { name: nameFor(vulnerability) }, spec }), "application/json");
      toast(t("{vulnerability} is excepted.", { vulnerability }));
      then();
    },
  });
}

export function ExceptionsTab() {
  const [mayDelete] = useCan([{ cluster: "-", resource: "vulnerabilityexceptions.fairlead.dev", verb: "delete" }]);
  const read = useFetch("exceptions", (signal) => api.get<{ exceptions: Exception[] }>("/images/exceptions", { signal }), 10_000);
  const remove = ({ name, spec }: Exception) =>
    confirm({
      title: t("End the exception of {name}?", { name: spec.name }),
      text: t("The vulnerability counts again, at the next decision."),
      verb: t("End it"),
      danger: true,
      run: async () => {
        await api.delete(path`/images/exceptions/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<Exception>[] = [
    { id: "vulnerability", title: t("Vulnerability"), width: "minmax(160px, 1fr)", cell: ({ name, spec }) => <span class="mono" title={name}>{spec.name}{spec.days ? ` ${t("({days} days)", { days: spec.days })}` : ""}</span> },
    { id: "images", title: t("Of"), width: "minmax(200px, 2fr)", wrap: true, cell: ({ spec }) => <span>{spec.images?.length ? <span class="mono">{spec.images.join(", ")}</span> : t("every image")}{spec.packages?.length ? t(", package {packages}", { packages: spec.packages.join(", ") }) : ""}{spec.domains?.length ? t(", in {domains}", { domains: spec.domains.join(", ") }) : ""}</span> },
    { id: "why", title: t("Why"), width: "minmax(180px, 2fr)", wrap: true, cell: ({ spec }) => spec.reason || spec.comment || <span class="faint">{t("nobody said")}</span> },
    { id: "until", title: t("Until"), width: "120px", cell: ({ spec, ended }) => (ended ? <span class="warn-text">{t("has ended")}</span> : spec.until ? spec.until.slice(0, 10) : <span class="warn-text">{t("for ever")}</span>) },
    ...(mayDelete ? [{ id: "end", title: <span class="hidden">{t("Actions")}</span>, width: "78px", end: true, cell: (one: Exception) => <button type="button" class="button quiet" onClick={() => remove(one)}>{t("End")}</button> }] : []),
  ];
  return (
    <Loaded of={read}>
      {({ exceptions }) =>
        exceptions.length ? <ShortTable label={t("Exceptions")} columns={columns} rows={exceptions} rowKey={({ name }) => name} /> : <Empty title={t("No exception")}><p>{t("Every finding counts. An exception is made at the finding, with a reason and an end.")}</p></Empty>
      }
    </Loaded>
  );
}
