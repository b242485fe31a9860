/** Users, with their roles. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import { asProblem, type ApiProblem } from "../../api/problem";
import type { PasswordSet, Roles, User, Users } from "../../api/schema";
import { session, useCan } from "../../api/session";
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
      title: `${disabled ? "Enable" : "Disable"} the user ${name}?`,
      text: disabled ? "They may log in again, with the roles that they have." : "Their sessions and open streams end within seconds; tokens are refused until they are enabled again.",
      verb: disabled ? "Enable" : "Disable",
      danger: !disabled,
      run: async () => {
        await api.patch(path`/users/${name}`, { disabled: !disabled });
        toast(`${name} is ${disabled ? "enabled" : "disabled"}.`);
        read.reload();
      },
    });
  const setPassword = ({ name, hasPassword }: User) => {
    const asked = { password: "", revokeTokens: false };
    confirm({
      title: `${hasPassword ? "Another" : "A"} password for ${name}`,
      text: "Sessions that were begun with the present one end.",
      fields: (
        <>
          <label class="label">Password<input class="field" type="password" autocomplete="new-password" required autofocus onInput={(event) => { asked.password = event.currentTarget.value; }} /></label>
          <label class="row"><input type="checkbox" class="check" onChange={(event) => { asked.revokeTokens = event.currentTarget.checked; }} /> Revoke their tokens as well, as after a theft</label>
        </>
      ),
      verb: "Set",
      run: async () => {
        const { tokensRevoked, tokensKept } = await api.put<PasswordSet>(path`/users/${name}/password`, asked);
        toast(`${name} has another password.${tokensRevoked ? ` ${tokensRevoked} tokens are revoked.` : tokensKept ? ` ${tokensKept} tokens are kept.` : ""}`);
        read.reload();
      },
    });
  };
  const remove = ({ name }: User) =>
    confirm({
      title: `Delete the user ${name}?`,
      text: "Their sessions, tokens and open streams end within seconds.",
      verb: "Delete",
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/users/${name}`);
        read.reload();
      },
    });
  const columns: TableColumn<User>[] = [
    { id: "name", title: "User", width: "minmax(110px, 1fr)", cell: ({ name, disabled }) => <span class={disabled ? "faint" : ""}>{name}{name === me && <span class="faint"> (you)</span>}{disabled && <span class="tag warn"> disabled</span>}</span> },
    { id: "roles", title: "Roles", width: "minmax(110px, 1.6fr)", wrap: true, cell: ({ roles }) => (roles.length ? roles.map((role) => <a key={role} class="tag" href={`/access?tab=roles&role=${encodeURIComponent(role)}`}>{role}</a>) : <span class="muted">none</span>) },
    { id: "password", title: "Password", width: "86px", cell: ({ hasPassword }) => (hasPassword ? "set" : <span class="muted">none</span>) },
    { id: "problems", title: "", width: "minmax(60px, 1.4fr)", wrap: true, cell: ({ problems }) => problems?.length ? <span class="bad-text">{problems.join(" ")}</span> : null },
    {
      id: "menu",
      title: <span class="hidden">Actions</span>,
      width: "360px",
      end: true,
      cell: (user) => (
        <span class="row">
          <button type="button" class="button quiet" onClick={() => setShown(user.name)}>Rights</button>
          {mayUpdate && <button type="button" class="button quiet" onClick={() => setEditing(user)}>Roles</button>}
          {mayUpdate && <button type="button" class="button quiet" onClick={() => setPassword(user)}>Password</button>}
          {mayUpdate && user.name !== me && <button type="button" class="button quiet" onClick={() => setDisabled(user)}>{user.disabled ? "Enable" : "Disable"}</button>}
          {mayDelete && user.name !== me && <button type="button" class="button quiet" onClick={() => remove(user)}>Delete</button>}
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
            {mayCreate && <button type="button" class="button" onClick={() => setEditing("new")}>Add a user</button>}
          </div>
          <ShortTable label="Users" columns={columns} rows={users} rowKey={({ name }) => name} />
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
      toast(user ? `${user.name} has other roles now.` : `${name} is there.`);
      onClose(true);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <Dialog title={user ? `Roles of ${user.name}` : "Add a user"} onClose={() => onClose(false)}>
      <form onSubmit={(event) => void save(event)}>
        {!user && <label class="label">Name<input class="field" required value={name} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} /></label>}
        {!user && <label class="label">Password; without one, the user has tokens only<input class="field" type="password" autocomplete="new-password" value={password} onInput={(event) => setPassword(event.currentTarget.value)} /></label>}
        <fieldset class="stack">
          <legend class="muted">Roles</legend>
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
          <button type="button" class="button" onClick={() => onClose(false)}>Cancel</button>
          <button type="submit" class="button primary">Save</button>
        </footer>
      </form>
    </Dialog>
  );
}
