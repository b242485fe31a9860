/** The frame around every page: sidebar, top bar, and what lies over them. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { logOut, session } from "./api/session";
import { activeKeys, isMac, useKeys, type Key } from "./keys";
import { rich, t } from "./language";
import { link } from "./live/live";
import { isMovable, keepMoved, moved, moveKey, pressedFor } from "./moved-keys";
import { kinds, pageLinks, pins, selection } from "./nav";
import { ClusterChooser } from "./parts/chooser";
import { Confirmations, Dialog } from "./parts/dialog";
import { Logo, Magnifier, Menu, Moon, Person, Sun } from "./parts/icons";
import { LanguageMenu } from "./parts/language-menu";
import { openPalette, Palette } from "./parts/palette";
import { Popover } from "./parts/popover";
import { now } from "./parts/time";
import { toastProblem, Toasts } from "./parts/toast";
import { explore, joinClusters, ALL } from "./places";
import { saved } from "./saved";
import { address, navigate } from "./router";
import { choice, choose, dark, type Choice } from "./theme";

const sidebar = signal(false);
const help = signal(false);

export function Layout({ children }: { children: ComponentChildren }) {
  useEffect(() => {
    sidebar.value = false;
  }, [address.value]);
  useKeys([
    { key: "mod+k", does: t("search"), run: () => openPalette() },
    { key: ":", does: t("go to a kind"), run: () => openPalette("kinds") },
    { key: "?", does: t("this help"), run: () => { help.value = true; } },
    { key: "Escape", does: t("back"), run: () => { sidebar.value = false; }, hidden: true },
  ]);
  return (
    <>
      <div class="frame">
        <Sidebar />
        <header class="top">
          <button type="button" class="button quiet icon menu" aria-label={t("Menu")} onClick={() => { sidebar.value = !sidebar.value; }}>
            <Menu />
          </button>
          <ClusterChooser />
          <span class="grow" />
          <button type="button" class="searchbox" onClick={() => openPalette()}>
            <Magnifier size={14} />
            <span>{t("Search")}</span>
            <kbd>{isMac ? "⌘" : "Ctrl"} K</kbd>
          </button>
          <LanguageMenu />
          <ThemeMenu />
          <UserMenu />
        </header>
        <main id="main" tabIndex={-1}>
          <LinkBanner />
          {children}
        </main>
      </div>
      <Palette />
      {help.value && <Help />}
      <Confirmations />
      <Toasts />
    </>
  );
}

function Sidebar() {
  const { path, query } = address.value;
  const whole = path + (query.size ? `?${query}` : "");
  const chosen = joinClusters(selection());
  const here = decodeURIComponent(/^\/c\/[^/]+\/([^/]+)/.exec(path)?.[1] ?? "");
  const current = (is: boolean) => (is ? { "aria-current": "page" as const } : {});
  const suffix = chosen === ALL ? "" : `?clusters=${encodeURIComponent(chosen).replaceAll("%2C", ",")}`;
  const pagesOf = ({ title, pages }: (typeof pageLinks)[number]) =>
    pages.length > 0 && (
      <section key={title}>
        {title && <h2>{title}</h2>}
        <ul>
          {pages.map((one) => (
            <li key={one.path}>
              <a href={one.path === "/" ? "/" : one.path + suffix} {...current(path === one.path || (one.path !== "/" && path.startsWith(`${one.path}/`)))}>
                {one.title}
              </a>
            </li>
          ))}
        </ul>
      </section>
    );
  const kindsOf = (title: string, links: typeof pins.value) =>
    links.length > 0 && (
      <section key={title}>
        <h2>{title}</h2>
        <ul>
          {links.map(({ kind, title: name }) => (
            <li key={kind}>
              <a href={explore(chosen, kind)} {...current(here === kind)}>
                <span class="clip">{name}</span>
              </a>
            </li>
          ))}
        </ul>
      </section>
    );
  const [first, ...rest] = pageLinks;
  return (
    <nav class={`side${sidebar.value ? " open" : ""}`} aria-label={t("Pages")}>
      <a class="brand" href="/">
        <Logo />
        Fairlead
      </a>
      <div class="nav">
        {first && pagesOf(first)}
        {rest.map(pagesOf)}
        {saved.value.length > 0 && (
          <section>
            <h2>{t("Favourites")}</h2>
            <ul>
              {saved.value.map(({ href, title, note }) => (
                <li key={href}>
                  <a href={href} title={note ? `${title}, ${note}` : title} {...current(href === whole)}>
                    <span class="clip">{title}</span>
                  </a>
                </li>
              ))}
            </ul>
          </section>
        )}
        {kindsOf(t("Pinned"), pins.value)}
        {kinds.map(({ title, kinds: links }) => kindsOf(title, links))}
        <button type="button" class="all" onClick={() => openPalette("kinds")}>
          {rich("All kinds… {kbd}", { kbd: <kbd>:</kbd> })}
        </button>
      </div>
    </nav>
  );
}

function LinkBanner() {
  const { state, since, nextTryAt } = link.value;
  if (state !== "lost") return null;
  const seconds = Math.max(0, Math.ceil(((nextTryAt ?? 0) - now.value) / 1000));
  // A blink is no news.
  if (now.value - since < 1500) return null;
  return (
    <div class="banner" role="status">
      <span class="dot warn" />
      {t("Fairlead does not answer. What you see is from before; trying again {what}.", { what: seconds ? t("in {seconds} s", { seconds }) : t("now") })}
    </div>
  );
}

function ThemeMenu() {
  const choices: [Choice, string][] = [["system", t("As the system")], ["light", t("Light")], ["dark", t("Dark")]];
  return (
    <Popover class="button quiet icon" name={t("Theme")} label={dark.value ? <Moon /> : <Sun />}>
      {(close) =>
        choices.map(([value, text]) => (
          <button key={value} type="button" class="item" aria-pressed={choice.value === value} onClick={() => { choose(value); close(); }}>
            <span class="grow">{text}</span>
            {choice.value === value && "✓"}
          </button>
        ))
      }
    </Popover>
  );
}

function UserMenu() {
  const state = session.value;
  if (state.state !== "in") return null;
  const { user, roles, via } = state.me;
  return (
    <Popover class="button quiet icon" name={t("Account")} label={<Person />}>
      {(close) => (
        <>
          <div style={{ padding: "4px 9px 2px" }}>
            <strong>{user}</strong>
            <p class="muted small">{roles.length ? roles.join(", ") : t("no roles")}</p>
          </div>
          <hr />
          <button type="button" class="item" onClick={() => { close(); void import("./kubeconfig").then(({ downloadKubeconfig }) => downloadKubeconfig()); }}>
            {t("Kubeconfig for kubectl")}
          </button>
          <button type="button" class="item" onClick={() => { close(); help.value = true; }}>
            <span class="grow">{t("Keyboard")}</span>
            <kbd>?</kbd>
          </button>
          {via.startsWith("session") && (
            <button type="button" class="item" onClick={() => void logOut().then(() => navigate("/")).catch(toastProblem)}>
              {t("Log out")}
            </button>
          )}
        </>
      )}
    </Popover>
  );
}

function Help() {
  const [keys] = useState<Key[]>(activeKeys);
  const [moving, setMoving] = useState<string | null>(null);
  const shown = (key: string) => (key === "mod+k" ? (isMac ? "⌘ K" : "Ctrl K") : pressedFor(key));
  const take = (event: KeyboardEvent) => {
    if (moving === null || ["Tab", "Shift"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (isMovable(event.key)) keepMoved(moveKey(moving, event.key));
    setMoving(null);
  };
  return (
    <Dialog title={t("Keyboard")} onClose={() => { help.value = false; }}>
      <form method="dialog" onSubmit={(event) => { event.preventDefault(); help.value = false; }}>
        <h1>{t("Keyboard")}</h1>
        <dl class="pairs">
          {keys.map(({ key, does }) => (
            <>
              <dt key={`${key} key`}>
                {isMovable(key) ? (
                  <button type="button" class="linkish" aria-label={t("{does}: {shown}; choose another key", { does, shown: shown(key) })} title={t("Choose another key")} onClick={() => setMoving(key)} onKeyDown={take} onBlur={() => setMoving(null)}>
                    <kbd>{moving === key ? t("press…") : shown(key)}</kbd>
                  </button>
                ) : (
                  <kbd>{shown(key)}</kbd>
                )}
              </dt>
              <dd key={key}>{does}</dd>
            </>
          ))}
        </dl>
        <p class="muted small">{t("Click a key to choose another for it. This browser remembers your choice.")}</p>
        <footer>
          {Object.keys(moved.value).length > 0 && <button type="button" class="button" onClick={() => keepMoved({})}>{t("As they were")}</button>}
          <button type="submit" class="button primary" autofocus>{t("Close")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
