/** The pod network: pools, and the blocks of them that nodes have. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { locale, rich, t } from "../../language";
import { Empty, Loaded } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { query, setQuery } from "../../router";
import { Addresses } from "./addresses";
import "./net.css";

interface Pool {
  name: string;
  blockSizeBits: number;
  subnets: { ipv4?: string; ipv6?: string }[];
  blocks: number;
  claimed: number;
  used: number;
  free: number;
  counted: boolean;
}

interface Block {
  name: string;
  pool: string;
  index: number;
  node: string;
  ipv4?: string;
  ipv6?: string;
  nodeAddresses: string[];
  used: number;
  free: number;
  trouble?: string;
}

const SHOWN = 300;

function Meter({ used, of, label }: { used: number; of: number; label: string }) {
  const share = of > 0 ? used / of : 0;
  return (
    <span class="row">
      <meter class="meter" min={0} max={1} low={0.8} high={0.95} optimum={0} value={share} aria-label={label} />
      <span class="number">{t("{used} of {of}", { used: used.toLocaleString(locale), of: of.toLocaleString(locale) })}</span>
    </span>
  );
}

const POOLS: TableColumn<Pool>[] = [
  { id: "name", title: t("Pool"), width: "minmax(120px, .8fr)", cell: ({ name }) => <button type="button" class="linklike" onClick={() => setQuery({ pool: query.value.get("pool") === name ? null : name })}>{name}</button> },
  { id: "subnets", title: t("Networks"), width: "minmax(220px, 2fr)", wrap: true, cell: ({ subnets }) => <span class="mono">{subnets.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6]).filter(Boolean).join(", ")}</span> },
  { id: "size", title: t("Block"), width: "110px", end: true, cell: ({ blockSizeBits }) => t("{what} addresses", { what: (2 ** blockSizeBits).toLocaleString(locale) }) },
  { id: "claimed", title: t("Blocks claimed"), width: "minmax(220px, 1.4fr)", cell: ({ claimed, blocks, counted }) => (counted ? <Meter used={claimed} of={blocks} label={t("Blocks that nodes have")} /> : <span class="muted">{t("not counted yet")}</span>) },
  { id: "used", title: t("Addresses of these"), width: "minmax(220px, 1.4fr)", cell: ({ used, free, counted }) => counted && <Meter used={used} of={used + free} label={t("Addresses that pods have")} /> },
];

const BLOCKS: TableColumn<Block>[] = [
  { id: "node", title: "Node", width: "minmax(150px, 1.2fr)", cell: ({ node }) => node },
  { id: "addresses", title: t("Addresses"), width: "minmax(180px, 1.6fr)", cell: ({ ipv4, ipv6 }) => <span class="mono">{[ipv4, ipv6].filter(Boolean).join(", ")}</span> },
  { id: "pool", title: t("Pool"), width: "minmax(90px, .7fr)", cell: ({ pool, index }) => <span>{pool} <span class="faint">{t("no. {index}", { index })}</span></span> },
  { id: "used", title: t("Used"), width: "minmax(200px, 1.2fr)", cell: ({ used, free }) => <Meter used={used} of={used + free} label={t("Addresses that pods have")} /> },
  { id: "via", title: t("Routed to"), width: "minmax(130px, 1fr)", cell: ({ nodeAddresses }) => <span class="mono">{nodeAddresses.join(", ")}</span> },
  { id: "trouble", title: t("Trouble"), width: "minmax(120px, 1.4fr)", wrap: true, cell: ({ trouble }) => trouble && <span class="bad-text">{trouble}</span> },
];

export default function Net() {
  const text = query.value.get("q") ?? "";
  const pool = query.value.get("pool");
  const pools = useFetch("pools", (signal) => api.get<{ pools: Pool[] }>("/net/pools", { signal }), 5000);
  const blocks = useFetch("blocks", (signal) => api.get<{ blocks: Block[] }>("/net/blocks", { signal }), 5000);
  return (
    <div class="page">
      <header>
        <h1>{t("Net")}</h1>
      </header>
      <Loaded of={pools}>
        {({ pools }) =>
          pools.length ? (
            <section class="card" aria-label={t("Pools")}>
              <header><h2>{t("Pools")}</h2><span class="faint number">{pools.length}</span></header>
              <ShortTable label={t("Pools")} columns={POOLS} rows={pools} rowKey={({ name }) => name} />
            </section>
          ) : (
            <Empty title={t("No pool of addresses")}>
              <p>{rich("Fairlead is not the pod network here. In a cluster: {code}; on one container host: {code2}.", { code: <code>fairlead install --components net,…</code>, code2: <code>fairlead agent --net-subnets 10.64.0.0/16</code> })}</p>
            </Empty>
          )
        }
      </Loaded>
      {(pools.data?.pools.length ?? 0) > 0 && (
        <Loaded of={blocks}>
          {({ blocks }) => {
            const shown = blocks.filter((block) => (!pool || block.pool === pool) && (!text || [block.node, block.ipv4, block.ipv6, block.pool, block.trouble].some((part) => part?.includes(text))));
            return (
              <section class="card" aria-label={t("Blocks")}>
                <header>
                  <h2>{t("Blocks")}</h2>
                  <span class="faint number">{shown.length}{shown.length > SHOWN ? t(", the first {SHOWN} are shown", { SHOWN }) : ""}</span>
                  <input class="field" type="search" placeholder={t("Filter")} aria-label={t("Filter blocks")} value={text} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
                  {pool && <button type="button" class="button quiet" onClick={() => setQuery({ pool: null })}>{t("Pool {pool} ✕", { pool })}</button>}
                </header>
                <ShortTable label={t("Blocks")} columns={BLOCKS} rows={shown.slice(0, SHOWN)} rowKey={({ name }) => name} />
              </section>
            );
          }}
        </Loaded>
      )}
      {(pools.data?.pools.length ?? 0) > 0 && <Addresses />}
    </div>
  );
}
