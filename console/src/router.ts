/**
 * The address is the state: what a page shows is in its path and query, and nowhere else.
 *
 * Back, forward, reload and a copied link restore everything. Plain `<a href>` elements navigate
 * without loading the page again.
 */
import { computed, signal } from "@preact/signals";

export interface Address {
  path: string;
  query: URLSearchParams;
}

function read(): Address {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

/** The address as it is now. */
export const address = signal<Address>(read());

/** The query alone, for components that do not care for the path. */
export const query = computed(() => address.value.query);

export function navigate(href: string, how: { replace?: boolean } = {}): void {
  if (href === location.pathname + location.search) return;
  if (how.replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  address.value = read();
}

/**
 * Changes parts of the query; `null` or an empty text removes one. Replaces the entry in the history
 * unless `push` is set: typing a filter must not fill the history.
 */
export function setQuery(changes: Record<string, string | null | undefined>, push = false): void {
  const next = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") next.delete(name);
    else next.set(name, value);
  }
  navigate(href(location.pathname, next), { replace: !push });
}

/** A path with its query, in a form that people can read: commas, slashes and colons stay. */
export function href(path: string, query?: URLSearchParams | Record<string, string | null | undefined>): string {
  if (!query) return path;
  const entries: [string, string][] =
    query instanceof URLSearchParams
      ? [...query.entries()]
      : Object.entries(query).flatMap(([name, value]) => (value ? [[name, value]] : []));
  if (!entries.length) return path;
  return `${path}?${entries.map(([name, value]) => `${segment(name)}=${segment(value)}`).join("&")}`;
}

/** One segment of a path, or one value of a query. */
export function segment(text: string): string {
  return encodeURIComponent(text).replace(/%(2C|3A|2F|40|3D|21)/gi, (code) => {
    // A slash would end a segment; in a query it may stay, but one rule for both is simpler.
    return code.toUpperCase() === "%2F" ? code : decodeURIComponent(code);
  });
}

export type Params = Record<string, string>;

/** Matches a path with a pattern such as `/c/:clusters/:kind`. */
export function match(pattern: string, path: string): Params | null {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  if (wanted.length !== given.length) return null;
  const params: Params = {};
  for (const [index, part] of wanted.entries()) {
    const value = given[index] as string;
    if (!part.startsWith(":")) {
      if (part !== value) return null;
      continue;
    }
    try {
      params[part.slice(1)] = decodeURIComponent(value);
    } catch {
      return null;
    }
  }
  return params;
}

/** Begins to follow the history and clicks on links. */
export function startRouter(): void {
  addEventListener("popstate", () => {
    address.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.composedPath().find((node): node is HTMLAnchorElement => node instanceof HTMLAnchorElement);
    if (!link?.href || link.target || link.hasAttribute("download")) return;
    const to = new URL(link.href);
    if (to.origin !== location.origin || to.pathname.startsWith("/api/") || to.pathname.startsWith("/auth/")) return;
    event.preventDefault();
    navigate(to.pathname + to.search);
  });
}
