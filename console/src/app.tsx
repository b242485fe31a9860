/** Shows the page of the address to who is logged in, and the login to who is not. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { askWho, session } from "./api/session";
import { Layout } from "./layout";
import { Login } from "./login";
import { Logo } from "./parts/icons";
import { Empty, ProblemNotice } from "./parts/problem";
import { address } from "./router";
import { find, type Page, type PageProps } from "./routes";

/** Pages whose code has been fetched. */
const loaded = signal(new Map<Page, ComponentType<PageProps> | { failed: unknown }>());

function load(page: Page): void {
  const put = (value: ComponentType<PageProps> | { failed: unknown }) => {
    loaded.value = new Map(loaded.value).set(page, value);
  };
  page.load().then(
    (module) => put(module.default),
    (error: unknown) => put({ failed: error }),
  );
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
  const title = found ? found.page.title(found.params) : "Not here";
  useEffect(() => {
    document.title = title === "Fleet" ? "Fairlead" : `${title} · Fairlead`;
  }, [title]);
  useEffect(() => {
    if (page && !loaded.value.has(page)) load(page);
  }, [page]);
  if (!found || !page) {
    return (
      <div class="page">
        <Empty title="There is no page at this address">
          <p>Go to the <a href="/">fleet</a>, or press <kbd>:</kbd> for a kind.</p>
        </Empty>
      </div>
    );
  }
  const Page = loaded.value.get(page);
  if (!Page) return <div class="progress" role="progressbar" aria-label="Loading the page" />;
  if (typeof Page === "object") {
    const again = () => {
      const without = new Map(loaded.value);
      without.delete(page);
      loaded.value = without;
      load(page);
    };
    return (
      <div class="page">
        <ProblemNotice problem={new Error("this page could not be loaded; Fairlead may have been replaced by a newer version: load the page again")} again={again} />
      </div>
    );
  }
  return <Page params={found.params} />;
}
