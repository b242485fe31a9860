/** What Fairlead itself knows of an object: its traffic, its rules, verdicts, changes, calls in flight. */
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { explain, isAbort } from "../../api/problem";
import type { AdmissionLine, AuditEntry, ConversationLine, NetworkRuleLine, NetworkRules, ViolationLine } from "../../api/schema";
import { locale, t } from "../../language";
import { Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age, duration } from "../../parts/time";
import type { ObjectPlace } from "../../places";
import { End } from "../traffic/ends";

/** Each part is a list, or the reason why there is none. */
type Part<T> = T[] | { why: string };

interface Operation {
  id: number;
  kind: string;
  key: string;
  tenant: string;
  step: string;
  age_ms: number;
}

interface Told {
  conversations?: ConversationLine[];
  violations?: ViolationLine[];
  admission?: AdmissionLine[];
  audit?: AuditEntry[];
  inFlight?: Operation[];
  leftOut: { part: string; why: string }[];
}

interface Everything {
  traffic: Part<ConversationLine>;
  violations: Part<ViolationLine>;
  rules: Part<NetworkRuleLine>;
  admission: Part<AdmissionLine>;
  audit: Part<AuditEntry>;
  inflight: Part<Operation>;
}

async function collect({ cluster, namespace, name, kind }: ObjectPlace, signal: AbortSignal): Promise<Everything> {
  const told = await api.get<Told>(path`/clusters/${cluster}/resources/${kind}/${name}/evidence`, { query: { namespace, limit: 200 }, signal });
  const part = <T,>(name: keyof Told, list: T[] | undefined): Part<T> => list ?? { why: sentence(told.leftOut.find((one) => one.part === name)?.why) };
  const named = new Set([...(told.conversations ?? []), ...(told.violations ?? [])].flatMap(({ rule }) => (rule ? [rule] : [])));
  return {
    traffic: part("conversations", told.conversations),
    violations: part("violations", told.violations),
    rules: await rulesOf(named, signal),
    admission: part("admission", told.admission),
    audit: part("audit", told.audit),
    inflight: part("inFlight", told.inFlight),
  };
}

function sentence(why: string | undefined): string {
  if (!why) return t("It is not told.");
  return `${why.charAt(0).toUpperCase()}${why.slice(1)}${/[.!?]$/.test(why) ? "" : "."}`;
}

/** The rules that decided about its conversations. */
async function rulesOf(named: Set<string>, signal: AbortSignal): Promise<Part<NetworkRuleLine>> {
  if (!named.size) return [];
  try {
    return (await api.get<NetworkRules>("/guard/rules", { signal })).rules.filter(({ name }) => named.has(name));
  } catch (error) {
    if (isAbort(error)) throw error;
    return { why: explain(error).sentence };
  }
}

export function Evidence({ place }: { place: ObjectPlace }) {
  const read = useFetch(JSON.stringify(place), (signal) => collect(place, signal), 5000);
  const end = (one: ConversationLine["client"]) => <End end={one} />;
  return (
    <div class="evidence">
      <Loaded of={read}>
        {(all) => (
          <>
            <Section
              title={t("Traffic")}
              empty={t("No conversation with it was seen.")}
              part={all.traffic}
              rowKey={(one) => JSON.stringify([one.client, one.server, one.port, one.protocol])}
              columns={[
                { id: "from", title: t("From"), width: "minmax(120px, 1fr)", cell: ({ client }) => end(client) },
                { id: "to", title: t("To"), width: "minmax(120px, 1fr)", cell: ({ server }) => end(server) },
                { id: "port", title: t("Port"), width: "110px", cell: ({ protocol, port }) => [protocol, port].filter(Boolean).join(" ") },
                { id: "verdict", title: t("Verdict"), width: "minmax(90px, .6fr)", cell: ({ verdict, rule }) => <span title={rule ?? ""} class={verdict && verdict !== "allow" && verdict !== "allowed" ? "bad-text" : ""}>{verdict}</span> },
                { id: "sessions", title: t("Sessions"), width: "84px", end: true, cell: ({ sessions }) => sessions.toLocaleString(locale) },
                { id: "last", title: t("Last"), width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
              ]}
            />
            <Section
              title={t("Violations")}
              empty={t("Nothing about it was against the rules.")}
              part={all.violations}
              rowKey={(one) => JSON.stringify([one.client, one.server, one.port, one.protocol])}
              columns={[
                { id: "from", title: t("From"), width: "minmax(120px, 1fr)", cell: ({ client }) => end(client) },
                { id: "to", title: t("To"), width: "minmax(120px, 1fr)", cell: ({ server }) => end(server) },
                { id: "port", title: t("Port"), width: "110px", cell: ({ protocol, port }) => `${protocol} ${port}` },
                { id: "rule", title: t("Rule"), width: "minmax(90px, 1fr)", cell: ({ rule }) => rule ?? t("no rule allows it") },
                { id: "last", title: t("Last"), width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
              ]}
            />
            <Section
              title={t("Network rules")}
              empty={t("No rule is about it.")}
              part={all.rules}
              rowKey={({ name }) => name}
              columns={[
                { id: "name", title: t("Rule"), width: "minmax(140px, 1.2fr)", cell: ({ name, comment }) => <span title={comment}>{name}</span> },
                { id: "from", title: t("From"), width: "minmax(110px, 1fr)", cell: ({ from }) => from },
                { id: "to", title: t("To"), width: "minmax(110px, 1fr)", cell: ({ to }) => to },
                { id: "ports", title: t("Ports"), width: "minmax(90px, .8fr)", cell: ({ ports }) => ports.join(", ") },
                { id: "action", title: t("Action"), width: "82px", cell: ({ action }) => action },
                { id: "origin", title: t("Origin"), width: "90px", cell: ({ origin }) => origin },
              ]}
            />
            <Section
              title={t("Admission")}
              empty={t("No decision about it is kept.")}
              part={all.admission}
              rowKey={({ id }) => String(id)}
              columns={[
                { id: "outcome", title: t("Verdict"), width: "96px", cell: ({ outcome }) => <span class={outcome === "denied" ? "bad-text" : outcome === "monitored" ? "warn-text" : ""}>{outcome}</span> },
                { id: "object", title: t("Object"), width: "minmax(130px, 1fr)", cell: ({ object }) => object },
                { id: "rule", title: t("Rule"), width: "minmax(90px, .8fr)", cell: ({ rule }) => rule },
                { id: "why", title: t("Why"), width: "minmax(200px, 2fr)", wrap: true, cell: ({ why }) => why },
                { id: "count", title: t("Times"), width: "64px", end: true, cell: ({ count }) => count },
                { id: "last", title: t("Last"), width: "76px", end: true, cell: ({ last }) => <Age time={last} /> },
              ]}
            />
            <Section
              title={t("Done through Fairlead")}
              empty={t("Nobody changed it through Fairlead.")}
              part={all.audit}
              rowKey={({ id }) => id}
              columns={[
                { id: "at", title: t("When"), width: "84px", end: true, cell: ({ at }) => <Age time={at} /> },
                { id: "user", title: t("Who"), width: "minmax(100px, .8fr)", cell: ({ user, via }) => <span title={via}>{user}</span> },
                { id: "verb", title: t("What"), width: "120px", cell: ({ verb, dryRun }) => `${verb}${dryRun ? ` ${t("(dry run)")}` : ""}` },
                { id: "outcome", title: t("Outcome"), width: "minmax(120px, 1.4fr)", wrap: true, cell: ({ outcome }) => outcome },
              ]}
            />
            <Section
              title={t("In flight")}
              empty={t("Nothing that Fairlead does right now is about it.")}
              part={all.inflight}
              rowKey={(one) => JSON.stringify([one.id, one.kind, one.key])}
              columns={[
                { id: "kind", title: t("Operation"), width: "minmax(100px, 1fr)", cell: ({ kind }) => kind },
                { id: "key", title: t("About"), width: "minmax(120px, 1.4fr)", cell: ({ key }) => key },
                { id: "step", title: t("Step"), width: "minmax(100px, 1fr)", cell: ({ step }) => step },
                { id: "age", title: t("For"), width: "76px", end: true, cell: (one) => duration(one.age_ms) },
              ]}
            />
          </>
        )}
      </Loaded>
    </div>
  );
}

function Section<T>(props: { title: string; empty: string; part: Part<T>; columns: TableColumn<T>[]; rowKey: (row: T) => string }) {
  const { part } = props;
  if (!Array.isArray(part) || !part.length) {
    return (
      <p class="none">
        <strong>{props.title}</strong> <span class="muted">{Array.isArray(part) ? props.empty : part.why}</span>
      </p>
    );
  }
  return (
    <section class="card">
      <header>
        <h2>{props.title}</h2>
        <span class="faint number">{part.length}</span>
      </header>
      <ShortTable label={props.title} columns={props.columns} rows={part} rowKey={props.rowKey} />
    </section>
  );
}
