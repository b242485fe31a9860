/** Every image of which something is known, one line for each content. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { useKeys } from "../../keys";
import { locale, rich, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { href, query, setQuery } from "../../router";

export interface ShownImage {
  images: string[];
  sources: string[];
  scanned?: string;
  critical?: number;
  high?: number;
  medium?: number;
  low?: number;
  packages?: number;
  os?: string;
  complianceIssues?: number;
  verifiers?: string[];
}

interface KnownImages {
  images: ShownImage[];
  total: number;
  leftOut: number;
}

/** As many as can be looked through; the filter finds the others. */
const SHOWN = 300;

/** The name by which people know it: one with a tag before a digest. */
export function titleOf({ images }: { images: string[] }): string {
  return images.find((name) => !name.includes("@")) ?? images[0] ?? "";
}

function Count({ of, tone }: { of: number | undefined; tone: string }) {
  if (of === undefined) return <span class="faint" title={t("Nobody looked")}>–</span>;
  return <span class={of ? tone : "faint"}>{of.toLocaleString(locale)}</span>;
}

const COLUMNS: TableColumn<ShownImage>[] = [
  { id: "image", title: t("Image"), width: "minmax(250px, 3fr)", cell: (one) => <a class="mono" href={href("/images", { image: titleOf(one) })} title={one.images.join("\n")}>{titleOf(one)}</a> },
  { id: "critical", title: t("Critical"), width: "74px", end: true, cell: ({ critical }) => <Count of={critical} tone="bad-text" /> },
  { id: "high", title: t("High"), width: "64px", end: true, cell: ({ high }) => <Count of={high} tone="warn-text" /> },
  { id: "medium", title: t("Medium"), width: "74px", end: true, cell: ({ medium }) => <Count of={medium} tone="" /> },
  { id: "low", title: t("Low"), width: "60px", end: true, cell: ({ low }) => <Count of={low} tone="" /> },
  { id: "signed", title: t("Signed"), width: "minmax(90px, .8fr)", cell: ({ verifiers }) => (verifiers === undefined ? <span class="faint">{t("not known")}</span> : verifiers.length ? <span class="ok-text" title={verifiers.join(", ")}>{verifiers.join(", ")}</span> : <span class="warn-text">{t("no")}</span>) },
  { id: "os", title: t("System"), width: "minmax(90px, .7fr)", cell: ({ os }) => (os === undefined ? <span class="faint">{t("not known")}</span> : os || "none") },
  { id: "packages", title: t("Packages"), width: "84px", end: true, cell: ({ packages }) => <Count of={packages} tone="" /> },
  { id: "sources", title: t("By"), width: "minmax(90px, .8fr)", cell: ({ sources }) => <span class="muted" title={sources.join(", ")}>{sources.join(", ")}</span> },
  { id: "scanned", title: t("Scanned"), width: "96px", end: true, cell: ({ scanned }) => <Age time={scanned} ago /> },
];

export function ImagesTab({ mayImport }: { mayImport: boolean }) {
  const text = query.value.get("q") ?? "";
  const cluster = query.value.get("cluster") ?? "";
  const read = useFetch(`images ${cluster} ${text}`, (signal) => api.get<KnownImages>("/images", { query: { name: text, cluster, limit: SHOWN }, signal }), 4000);
  useKeys([{ key: "/", does: t("filter"), run: () => document.getElementById("image-filter")?.focus() }]);
  return (
    <>
      <div class="row">
        <input id="image-filter" class="field" type="search" placeholder={t("A part of the name")} aria-label={t("Filter images")} spellcheck={false} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        {read.data && <span class="muted number">{read.data.total.toLocaleString(locale)}{read.data.total > read.data.images.length ? t(", the first {count} are shown", { count: read.data.images.length }) : ""}</span>}
      </div>
      <Loaded of={read}>
        {({ images, leftOut }) => (
          <>
            {leftOut > 0 && <div class="notice warn"><p>{t("{leftOut} older reports are left out: there is no room for them.", { leftOut: leftOut.toLocaleString(locale) })}</p></div>}
            {images.length ? (
              <ShortTable label={t("Images")} columns={COLUMNS} rows={images} rowKey={({ images: names }) => names.join(" ")} />
            ) : (
              <Empty title={text ? t("No image has this in its name") : t("Nothing is known of images")}>
                <p>{rich("{what}{code}, {code2}, CycloneDX, VEX. trivy-operator's are read from the cluster by themselves.", { what: mayImport ? `${t("Drop reports here:")} ` : `${t("Reports are handed in with")} `, code: <code>trivy image -f json</code>, code2: <code>grype -o json</code> })}</p>
              </Empty>
            )}
          </>
        )}
      </Loaded>
    </>
  );
}
