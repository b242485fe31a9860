/** Logging in: by password, or by a way that the server offers. The address stays as it is. */
import { useEffect, useState } from "preact/hooks";
import { BASE } from "./api/client";
import { asProblem, explain } from "./api/problem";
import { askWho, logIn } from "./api/session";
import { rich, t } from "./language";
import { Logo } from "./parts/icons";
import { LanguageMenu } from "./parts/language-menu";

interface Methods {
  password: boolean;
  oidc: { name: string; start: string }[];
}

export function Login({ why }: { why?: string | undefined }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>(null);
  const [methods, setMethods] = useState<Methods>({ password: true, oidc: [] });

  useEffect(() => {
    document.title = `${t("Log in")} · Fairlead`;
    const abort = new AbortController();
    fetch(`${BASE}/auth/methods`, { signal: abort.signal })
      .then(async (answer) => (answer.ok ? ((await answer.json()) as Methods) : null))
      .then((found) => found && Array.isArray(found.oidc) && setMethods(found))
      .catch(() => {});
    // Another tab may have logged in meanwhile.
    const look = () => document.visibilityState === "visible" && void askWho();
    document.addEventListener("visibilitychange", look);
    return () => {
      abort.abort();
      document.removeEventListener("visibilitychange", look);
    };
  }, []);

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await logIn(user, password);
    } catch (error) {
      setProblem(error);
      setPassword("");
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={(event) => void submit(event)}>
        <h1 class="brand"><Logo size={26} /> <span class="grow">Fairlead</span> <LanguageMenu /></h1>
        {why && <p class="muted" role="status">{why}</p>}
        {methods.password && (
          <>
            <label class="label">
              {t("User")}
              <input class="field" name="username" autocomplete="username" autofocus required value={user} onInput={(event) => setUser(event.currentTarget.value)} />
            </label>
            <label class="label">
              {t("Password")}
              <input class="field" name="password" type="password" autocomplete="current-password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
            </label>
            {problem !== null && <p class="bad-text" role="alert">{explain(problem).sentence}{asProblem(problem).code === "unauthenticated" ? "" : ` ${explain(problem).todo ?? ""}`}</p>}
            <button type="submit" class="button primary" disabled={busy}>{busy ? t("Logging in…") : t("Log in")}</button>
          </>
        )}
        {methods.oidc.length > 0 && (
          <>
            {methods.password && <span class="or small">{t("or")}</span>}
            {methods.oidc.map(({ name, start }) => (
              <a key={name} class="button" href={start}>{t("Log in with {name}", { name })}</a>
            ))}
          </>
        )}
        <p class="muted small">
          {rich("On the machine itself, {code} prints a link that logs in once.", { code: <code>fairlead up</code> })}
        </p>
      </form>
    </main>
  );
}
