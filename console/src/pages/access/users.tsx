/** Users, with their roles. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { PasswordSet, Roles, User, Users } from "../../api/schema";
import { session, useCan } from "../../api/session";
import { t } from "../../language";
import { confirm, Dialog } from "../../parts/dialog";
import { Loaded, ProblemNotice } from "../../parts/problem";
import { ShortTable, type TableColumn } from "../../parts/table";
import { toast } from "../../parts/toast";
import { EffectiveDialog } from "./effective";

export function UsersTab() {
  const [editing, setEditing] = useState<User | "new" | null>(null);
  const [mayCreate, mayUpdate, mayDelete] = useCan(["create", "update", "delete"].map((verb) => ({ cluster: "-", resource: "users.fairlead.dev", verb })));
  const read = useFetch("users", (signal) => api.get<Users>("/users", { signal }));
  const me = session.value.state === "in" ? session.value.me.user : "";
  const [shown, setShown] = useState<string | null>(null);
  const setDisabled = ({ name, disabled }: User) =>
    confirm({
      title: disabled ? t("Enable the user {name}?", { name }) : t("Disable the user {name}?", { name }),
      text: disabled ? t("They may log in again, with the roles that they have.") : t("Their sessions and open streams end within seconds; tokens are refused until they are enabled again."),
      verb: disabled ? t("Enable") : t("Disable"),
      danger: !disabled,
      run: async () => {
        await api.patch(path`/users/${name}`, { disabled: !disabled });
        toast(disabled ? t("{name} is enabled.", { name }) : t("{name} is disabled.", { name }));
        read.reload();
      },
    });
  const setPassword = ({ name, hasPassword }: User) => {
    const asked = { password: "", revokeTokens: false };
    confirm({
      title: hasPassword ? t("Another password for {name}", { name }) : t("A password for {name}", { name }),
      text: t("Sessions that were begun with the present one end."),
      fields: (
        <>
          <label class="label">{t("Password")}<input class="field" type="password" autocomplete="new-password" required autofocus onInput={(event) => { asked.password = event.currentTarget.value; }} /></label>
          <label class="row"><input type="checkbox" class="check" onChange={(event) => { asked.revokeTokens = event.currentTarget.checked; }} /> {t("Revoke their tokens as well, as after a theft")}</label>
        </>
      ),
      verb: t("Set"),
      run: async () => {
        const { tokensRevoked, tokensKept } = await api.put<PasswordSet>(path`/users/${name}/password`, asked);
        toast(t("{name} has another password.{what}", { name, what: tokensRevoked ? ` ${t("{tokensRevoked} tokens are revoked.", { tokensRevoked })}` : tokensKept ? ` ${t("{tokensKept} tokens are kept.", { tokensKept })}` : "" }));
        read.reload();
      },
    });
  };
  const remove = ({ name }: User) =>
    confirm({
      title: t("Delete the user {name}?", { name }),
      text: t("Their sessions, tokens and open streams end within seconds."),
      verb: t("Delete"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/users/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<User>[] = [
    { id: "name", title: t("User"), width: "minmax(110px, 1fr)", cell: ({ name, disabled }) => <span class={disabled ? "faint" : ""}>{name}{name === me && <span class="faint"> {t("(you)")}</span>}{disabled && <span class="tag warn"> {t("disabled")}</span>}</span> },
    { id: "roles", title: t("Roles"), width: "minmax(110px, 1.6fr)", wrap: true, cell: ({ roles }) => (roles.length ? roles.map((role) => <a key={role} class="tag" href={`/access?tab=roles&role=${encodeURIComponent(role)}`}>{role}</a>) : <span class="muted">{t("none")}</span>) },
    { id: "password", title: t("Password"), width: "86px", cell: ({ hasPassword }) => (hasPassword ? "set" : <span class="muted">{t("none")}</span>) },
    { id: "problems", title: "", width: "minmax(60px, 1.4fr)", wrap: true, cell: ({ problems }) => problems?.length ? <span class="bad-text">{problems.join(" ")}</span> : null },
    {
      id: "menu",
      title: <span class="hidden">{t("Actions")}</span>,
      width: "360px",
      end: true,
      cell: (user) => (
        <span class="row">
          <button type="button" class="button quiet" onClick={() => setShown(user.name)}>{t("Rights")}</button>
          {mayUpdate && <button type="button" class="button quiet" onClick={() => setEditing(user)}>{t("Roles")}</button>}
          {mayUpdate && <button type="button" class="button quiet" onClick={() => setPassword(user)}>{t("Password")}</button>}
          {mayUpdate && user.name !== me && <button type="button" class="button quiet" onClick={() => setDisabled(user)}>{user.disabled ? t("Enable") : t("Disable")}</button>}
          {mayDelete && user.name !== me && <button type="button" class="button quiet" onClick={() => remove(user)}>{t("Delete")}</button>}
        </span>
      ),
    },
  ];
  return (
    <Loaded of={read}>
      {({ users }) => (
        <>
          <div class="row">
            <span class="muted number">{users.length}</span>
            <span class="grow" />
            {mayCreate && <button type="button" class="button" onClick={() => setEditing("new")}>{t("Add a user")}</button>}
          </div>
          <ShortTable label={t("Users")} columns={columns} rows={users} rowKey={({ name }) => name} />
          {shown && <EffectiveDialog of={shown} route={path`/users/${shown}/effective`} onClose={() => setShown(null)} />}
          {editing && <UserDialog user={editing === "new" ? null : editing} onClose={(changed) => { setEditing(null); if (changed) read.reload(); }} />}
        </>
      )}
    </Loaded>
  );
}

function UserDialog({ user, onClose }: { user: User | null; onClose: (changed: boolean) => void }) {
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [chosen, setChosen] = useState<string[]>(user?.roles ?? []);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const roles = useFetch("roles", (signal) => api.get<Roles>("/roles", { signal }));
  const save = async (event: Event) => {
    event.preventDefault();
    try {
      if (user) await api.patch(path`/users/${user.name}`, { roles: chosen });
      else await api.post("/users", { name, roles: chosen, ...(password ? { password } : {}) });
      toast(user ? t("{name} has other roles now.", { name: user.name }) : t("{name} is there.", { name }));
      onClose(true);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <Dialog title={user ? t("Roles of {name}", { name: user.name }) : t("Add a user")} onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        {!user && <label class="label">{t("Name")}<input class="field" required value={name} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} /></label>}
        {!user && <label class="label">{t("Password; without one, the user has tokens only")}<input class="field" type="password" autocomplete="new-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} /></label>}
        <fieldset class="stack">
          <legend class="muted">{t("Roles")}</legend>
          <Loaded of={roles}>
            {({ roles }) => (
              <>
                {roles.map(({ name }) => (
                  <label key={name} class="row">
                    <input type="checkbox" class="check" checked={chosen.includes(name)} onChange={() => setChosen((old) => (old.includes(name) ? old.filter((one) => one !== name) : [...old, name]))} /> {name}
                  </label>
                ))}
              </>
            )}
          </Loaded>
        </fieldset>
        {problem && <ProblemNotice problem={problem} />}
        <footer>
          <button type="button" class="button" onClick={() => onClose(false)}>{t("Cancel")}</button>
          <button type="submit" class="button primary">{t("Save")}</button>
        </footer>
      </form>
    </Dialog>
  );
}
