/** Tokens: one's own, and all for who may list them. A secret is shown once. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { Created, Token, Tokens } from "../../api/schema";
import { rich, t } from "../../language";
import { confirm, Dialog } from "../../parts/dialog";
import { Empty, Loaded, ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { Age } from "../../parts/time";
import { toast } from "../../parts/toast";

const DAY = 24 * 60 * 60 * 1000;

export function TokensTab() {
  const [making, setMaking] = useState(false);
  const read = useFetch("tokens", (signal) => api.get<Tokens>("/tokens", { signal }));
  const revoke = ({ name, description }: Token) =>
    confirm({
      title: t("Revoke the token {description}?", { description: description || name }),
      text: t("The next request with it is refused."),
      verb: t("Revoke"),
      danger: true,
      run: async () => {
        await api.delete(path`/tokens/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<Token>[] = [
    { id: "name", title: t("Token"), width: "minmax(140px, 1fr)", cell: ({ name, description }) => <span title={name}>{description || <span class="mono">{name}</span>}</span> },
    { id: "user", title: t("User"), width: "minmax(110px, .8fr)", cell: ({ user }) => user },
    { id: "expires", title: t("Expires"), width: "minmax(140px, 1fr)", cell: ({ expires, expired }) => (expired ? <span class="bad-text">{t("has expired")}</span> : expires ? <span>{new Date(expires).toISOString().slice(0, 10)}</span> : <span class="warn-text">{t("never")}</span>) },
    { id: "problem", title: "", width: "minmax(80px, 1fr)", wrap: true, cell: ({ problem }) => problem && <span class="bad-text">{problem}</span> },
    { id: "revoke", title: <span class="hidden">{t("Actions")}</span>, width: "86px", end: true, cell: (token) => <button type="button" class="button quiet" onClick={() => revoke(token)}>{t("Revoke")}</button> },
  ];
  return (
    <Loaded of={read}>
      {({ tokens }) => (
        <>
          <div class="row">
            <span class="muted number">{tokens.length}</span>
            <span class="grow" />
            <button type="button" class="button" onClick={() => setMaking(true)}>{t("Make a token")}</button>
          </div>
          {tokens.length ? <ShortTable label={t("Tokens")} columns={columns} rows={tokens} rowKey={({ name }) => name} /> : <Empty title={t("No token")}><p>{t("Programs log in with tokens; people with passwords or their organisation's login.")}</p></Empty>}
          {making && <TokenDialog onClose={(made) => { setMaking(false); if (made) read.reload(); }} />}
        </>
      )}
    </Loaded>
  );
}

function TokenDialog({ onClose }: { onClose: (made: boolean) => void }) {
  const [description, setDescription] = useState("");
  const [days, setDays] = useState(30);
  const [made, setMade] = useState<Created | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const make = async (event: Event) => {
    event.preventDefault();
    try {
      setMade(await api.post<Created>("/tokens", { description, expires: new Date(Date.now() + days * DAY).toISOString() }));
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <Dialog title={t("Make a token")} onClose={() => onClose(made !== null)}>
      {made ? (
        <form onSubmit={(event) => { event.preventDefault(); onClose(true); }}>
          <p>{t("This is the one time that it is shown. It acts as {user}", { user: made.user })}{made.expires ? <>{rich(", and expires {age} from now", { age: <Age time={made.expires} /> })}</> : ""}.</p>
          <input class="field mono" readOnly aria-label={t("The token")} value={made.token} onFocus={(event) => event.currentTarget.select()} />
          <footer>
            <button type="button" class="button" onClick={() => void navigator.clipboard.writeText(made.token).then(() => toast(t("Copied.")))}>{t("Copy")}</button>
            <button type="submit" class="button primary">{t("Done")}</button>
          </footer>
        </form>
      ) : (
        <form onSubmit={(event) => void make(event)}>
          <label class="label">{t("What it is for")}<input class="field" required maxLength={200} value={description} onInput={(event) => setDescription(event.currentTarget.value)} /></label>
          <label class="label">
            {t("For how long")}
            <select class="select" value={String(days)} onChange={(event) => setDays(Number(event.currentTarget.value))}>
              {[[1, t("a day")], [7, t("a week")], [30, t("30 days")], [90, t("90 days")], [365, t("a year")]].map(([count, text]) => <option key={count} value={String(count)}>{text}</option>)}
            </select>
          </label>
          {problem && <ProblemNotice problem={problem} />}
          <footer>
            <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
            <button type="submit" class="button primary">{t("Make")}</button>
          </footer>
        </form>
      )}
    </Dialog>
  );
}
