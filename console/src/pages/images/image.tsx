/** One image: what rules find of it, each vulnerability, and which do not count. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { useCan } from "../../api/session";
import { useKeys } from "../../keys";
import { decimal, locale, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { href, navigate, query, setQuery } from "../../router";
import { except } from "./exceptions";
import type { ShownImage } from "./list";

interface Finding {
  id: string;
  aliases?: string[];
  package: string;
  installed: string;
  fixed?: string;
  severity: string;
  score?: number;
  published?: string;
  excepted: boolean;
}

interface Shown extends ShownImage {
  countsForAllow: boolean;
  vulnerabilities: Finding[];
}

interface KnownImage {
  image: string;
  known: boolean;
  records: Shown[];
}

const SHOWN = 500;
const ORDER = ["critical", "high", "medium", "low"];
const TONES: Record<string, string> = { critical: "bad", high: "warn", medium: "info", low: "" };

export function ImageDetail({ image }: { image: string }) {
  const [round, setRound] = useState(0);
  const read = useFetch(`image ${image} ${round}`, (signal) => api.get<KnownImage>("/images/show", { query: { image, cluster: query.value.get("cluster") }, signal }), 4000);
  useKeys([{ key: "Escape", does: t("back to the images"), run: () => navigate("/images") }]);
  return (
    <>
      <p class="crumbs muted"><a href="/images">{t("Images")}</a> <span class="faint">/</span> <span class="mono break">{image}</span></p>
      <Loaded of={read}>
        {({ records }) => (
          <>
            {records.map((record, index) => <Record key={record.images.join(" ") || index} image={image} of={record} onExcepted={() => setTimeout(() => setRound(round + 1), 600)} />)}
            {!records.length && <Empty title={t("Nothing is known of it")}><p>{t("No report names it. A rule that asks for scan results finds none, and says so.")}</p></Empty>}
          </>
        )}
      </Loaded>
    </>
  );
}

function Record({ image, of, onExcepted }: { image: string; of: Shown; onExcepted: () => void }) {
  const text = (query.value.get("q") ?? "").toLowerCase();
  const fixable = query.value.has("fixable");
  const [mayExcept] = useCan([{ cluster: "-", resource: "vulnerabilityexceptions.fairlead.dev", verb: "create" }]);
  const shown = of.vulnerabilities
    .filter((one) => (!fixable || one.fixed) && (!text || [one.id, one.package, one.severity, ...(one.aliases ?? [])].some((part) => part.toLowerCase().includes(text))))
    .sort((a, b) => Number(a.excepted) - Number(b.excepted) || ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity) || (b.score ?? 0) - (a.score ?? 0));
  const columns: TableColumn<Finding>[] = [
    { id: "severity", title: t("Severity"), width: "92px", cell: ({ severity, excepted }) => <span class={`tag ${excepted ? "" : (TONES[severity] ?? "")}`}>{severity}</span> },
    { id: "id", title: t("Vulnerability"), width: "minmax(128px, 1fr)", cell: ({ id, aliases }) => <span class="mono" title={(aliases ?? []).join(", ")}>{id}</span> },
    { id: "score", title: t("Score"), width: "62px", end: true, cell: ({ score }) => (score === null || score === undefined ? "" : decimal(score)) },
    { id: "package", title: t("Package"), width: "minmax(96px, 1.2fr)", cell: ({ package: name }) => <span title={name}>{name}</span> },
    { id: "installed", title: t("Installed"), width: "minmax(84px, .9fr)", cell: ({ installed }) => <span class="mono" title={installed}>{installed}</span> },
    { id: "fixed", title: t("Fixed in"), width: "minmax(84px, .9fr)", cell: ({ fixed }) => (fixed ? <span class="mono ok-text" title={fixed}>{fixed}</span> : <span class="faint">{t("no fix")}</span>) },
    { id: "published", title: t("Published"), width: "84px", end: true, cell: ({ published }) => <Age time={published} ago /> },
    {
      id: "excepted",
      title: "",
      width: "136px",
      end: true,
      cell: (one) => (one.excepted ? <span class="faint">{t("excepted")}</span> : mayExcept ? <button type="button" class="button quiet" onClick={() => except(one.id, image, onExcepted)}>{t("Add exception…")}</button> : null),
    },
  ];
  return (
    <section class="card" aria-label={of.images[0] ?? image}>
      <dl class="facts body">
        <div><dt>{t("Scanned")}</dt><dd>{of.scanned ? <Age time={of.scanned} ago /> : t("not for vulnerabilities")}</dd></div>
        <div><dt>{t("By")}</dt><dd>{of.sources.join(", ")}</dd></div>
        <div><dt>{t("System")}</dt><dd>{of.os === undefined ? t("not known") : of.os || t("none")}</dd></div>
        <div><dt>{t("Packages")}</dt><dd class="number">{of.packages?.toLocaleString(locale) ?? t("not known")}</dd></div>
        <div><dt>{t("Signed")}</dt><dd>{of.verifiers === undefined ? t("not known") : of.verifiers.length ? of.verifiers.join(", ") : t("by nobody whom a trust root names")}</dd></div>
        {(of.complianceIssues ?? 0) > 0 && <div><dt>{t("Compliance")}</dt><dd class="warn-text">{t("{complianceIssues} issues", { complianceIssues: of.complianceIssues })}</dd></div>}
        {!of.countsForAllow && <div><dt>{t("Rules")}</dt><dd>{t("only those that deny look at it: it was scanned without a registry")}</dd></div>}
      </dl>
      <header>
        <h2>{t("Vulnerabilities")}</h2>
        <span class="faint number">{shown.length === of.vulnerabilities.length ? shown.length : t("{count} of {count2}", { count: shown.length, count2: of.vulnerabilities.length })}{shown.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span>
        <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter vulnerabilities")} value={query.value.get("q") ?? ""} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <label class="row"><input type="checkbox" class="check" checked={fixable} onChange={() => setQuery({ fixable: fixable ? null : "1" })} /> {t("with a fix")}</label>
        <span class="grow" />
        <a href={href("/admission", { tab: "running" })}>{t("What runs against the rules")}</a>
      </header>
      {shown.length ? <ShortTable label={t("Vulnerabilities")} columns={columns} rows={shown.slice(0, SHOWN)} rowKey={({ id, package: name, installed }) => `${id} ${name} ${installed}`} /> : <p class="body muted">{of.vulnerabilities.length ? t("The filter hides them.") : of.scanned ? t("None was found.") : t("Nobody looked for any.")}</p>}
    </section>
  );
}
