/** Parts of a page, one of them shown; which one is in the address. */
import { locale } from "../language";
import { address, href, query } from "../router";

export interface Tab {
  id: string;
  title: string;
  count?: number | undefined;
}

/** The tab of the address, or the first. */
export function tabOf(tabs: Tab[]): string {
  const wanted = query.value.get("tab");
  return tabs.find(({ id }) => id === wanted)?.id ?? tabs[0]?.id ?? "";
}

export function Tabs({ label, tabs }: { label: string; tabs: Tab[] }) {
  const shown = tabOf(tabs);
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ id, title, count }, index) => (
        <a key={id} href={href(address.value.path, index ? { tab: id } : undefined)} {...(id === shown ? { "aria-current": "page" } : {})}>
          {title}
          {count !== undefined && <span class="faint number">{count.toLocaleString(locale)}</span>}
        </a>
      ))}
    </nav>
  );
}
