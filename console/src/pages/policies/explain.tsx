/** Asks about one connection: what each tier says of it, and which rule decides. The question is in the address. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { rich, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { query, setQuery } from "../../router";

interface Direction {
  verdict: string;
  tier: string | null;
  policy: string | null;
  rule: string | null;
  kind: string | null;
  why: string;
  tiers: { tier: string; said: string }[];
}

interface Explained {
  verdict: string;
  egress: Direction;
  ingress: Direction;
}

const PROTOCOLS = ["TCP", "UDP", "SCTP", "ICMP"];

export function ExplainTab() {
  const params = query.value;
  const asked = { from: params.get("from") ?? "", to: params.get("to") ?? "", port: params.get("port") ?? "", protocol: params.get("protocol") ?? "TCP" };
  const [typed, setTyped] = useState(asked);
  const ready = asked.from && asked.to;
  const read = useFetch(ready ? JSON.stringify(asked) : null, (signal) => api.get<Explained>("/policies/explain", { query: asked, signal }));
  const field = (name: "from" | "to" | "port", label: string, placeholder: string, required = true) => (
    <label class="label">
      {label}
      <input class="field mono" required={required} placeholder={placeholder} spellcheck={false} value={typed[name]} onInput={(event) => setTyped({ ...typed, [name]: event.currentTarget.value.trim() })} />
    </label>
  );
  return (
    <>
      <form class="row wrap ask" onSubmit={(event) => { event.preventDefault(); setQuery({ ...typed }, true); read.reload(); }}>
        {field("from", "From", t("shop/web-0, or an address"))}
        {field("to", "To", t("shop/db-0, or an address"))}
        {field("port", "Port", t("5432, or its name"), false)}
        <label class="label">
          {t("Protocol")}
          <select class="select" value={typed.protocol} onChange={(event) => setTyped({ ...typed, protocol: event.currentTarget.value })}>
            {PROTOCOLS.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
        <button type="submit" class="button primary">{t("Explain")}</button>
      </form>
      {ready ? (
        <Loaded of={read}>
          {({ verdict, egress, ingress }) => (
            <>
              <p class="figure"><span class={`tag ${verdict === "allow" ? "ok" : "bad"}`}>{verdict === "allow" ? t("allowed") : t("denied")}</span>{" "}{rich("{protocol} {port} from {from} to {to}", { protocol: asked.protocol, port: asked.port, from: <code>{asked.from}</code>, to: <code>{asked.to}</code> })}</p>
              <div class="cards">
                <Said title={t("Leaving {from}", { from: asked.from })} of={egress} />
                <Said title={t("Arriving at {to}", { to: asked.to })} of={ingress} />
              </div>
            </>
          )}
        </Loaded>
      ) : (
        <Empty title={t("Ask about a connection")}><p>{t("Both directions are judged: what the source may send, and what the destination may be sent.")}</p></Empty>
      )}
    </>
  );
}

function Said({ title, of }: { title: string; of: Direction }) {
  return (
    <section class="card" aria-label={title}>
      <header><h2 class="grow break">{title}</h2><span class={`tag ${of.verdict === "allow" ? "ok" : "bad"}`}>{of.verdict}</span></header>
      <div class="body stack">
        <p>{of.why.charAt(0).toUpperCase() + of.why.slice(1)}.</p>
        {of.tiers.length > 0 && (
          <ol class="tiers">
            {of.tiers.map(({ tier, said }) => <li key={tier}><strong>{tier}</strong> <span class="muted">{said}</span></li>)}
          </ol>
        )}
      </div>
    </section>
  );
}
