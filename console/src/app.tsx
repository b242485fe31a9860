/** Shows the page of the address to who is logged in, and the login to who is not. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { askWho, session } from "./api/session";
import { rich, t } from "./language";
import { Layout } from "./layout";
import { Login } from "./login";
import { Logo } from "./parts/icons";
import { Empty, ProblemNotice } from "./parts/problem";
import { address } from "./router";
import { find, type Page, type PageProps } from "./routes";

/** Pages whose code has been fetched. */
const loaded = signal(new Map<Page, ComponentType<PageProps> | { failed: unknown }>());

/** How long after a page was shown others are fetched, in milliseconds: its own requests go first. */
const OFTEN_AFTER = 500;

/** Pages whose code is being fetched. */
const loading = new Set<Page>();

/** Fetches a page's code. `ahead` of its time a failure is no news: it is fetched again when it is opened. */
function load(page: Page, ahead = false): void {
  if (loading.has(page) || loaded.value.has(page)) return;
  loading.add(page);
  const put = (value: ComponentType<PageProps> | { failed: unknown }) => {
    loading.delete(page);
    loaded.value = new Map(loaded.value).set(page, value);
  };
  page.load().then(
    (module) => put(module.default),
    (error: unknown) => {
      loading.delete(page);
      if (!ahead || find(address.value.path)?.page === page) put({ failed: error });
    },
  );
}

/** Fetches the code of the page at an address, ahead of its time. */
export function preload(path: string): void {
  const page = find(path)?.page;
  if (page) load(page, true);
}

/** Pages and parts that one goes to by a key: their code is there before the key is pressed. */
function preloadOften(): void {
  for (const path of ["/c/-/pods", "/c/-/pods/-/-", "/search"]) preload(path);
  // A part that fails to come now is fetched, and complained of, when it is opened.
  for (const part of [import("./pages/object/logs"), import("./pages/object/shell"), import("./pages/object/yaml")]) part.catch(() => {});
}

export function App() {
  const state = session.value;
  switch (state.state) {
    case "asking":
      return null;
    case "out":
      return <Login why={state.why} />;
    case "offline":
      return (
        <div class="login">
          <div class="box">
            <span class="brand"><Logo size={26} /> Fairlead</span>
            <ProblemNotice problem={state.problem} again={() => void askWho()} />
          </div>
        </div>
      );
    case "in":
      return <Layout><Current /></Layout>;
  }
}

function Current() {
  const { path } = address.value;
  const found = find(path);
  const page = found?.page;
  const title = found ? found.page.title(found.params) : t("Not here");
  useEffect(() => {
    document.title = title === t("Fleet") ? "Fairlead" : `${title} · Fairlead`;
  }, [title]);
  useEffect(() => {
    if (page) load(page);
  }, [page]);
  const there = page !== undefined && loaded.value.has(page);
  useEffect(() => {
    if (!there) return;
    const timer = setTimeout(preloadOften, OFTEN_AFTER);
    return () => clearTimeout(timer);
  }, [there]);
  if (!found || !page) {
    return (
      <div class="page">
        <Empty title={t("There is no page at this address")}>
          <p>{rich("Go to the {link}, or press {kbd} for a kind.", { link: <a href="/">{t("fleet")}</a>, kbd: <kbd>:</kbd> })}</p>
        </Empty>
      </div>
    );
  }
  const Page = loaded.value.get(page);
  if (!Page) return <div class="progress" role="progressbar" aria-label={t("Loading the page")} />;
  if (typeof Page === "object") {
    const again = () => {
      const without = new Map(loaded.value);
      without.delete(page);
      loaded.value = without;
      load(page);
    };
    return (
      <div class="page">
        <ProblemNotice problem={new Error(t("this page could not be loaded; Fairlead may have been replaced by a newer version: load the page again"))} again={again} />
      </div>
    );
  }
  return <Page params={found.params} />;
}
