/** Roles: what each allows and denies, in words; what that adds up to; made and changed here. */
import { useState } from "preact/hooks";
import { api, path } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Role, Roles } from "../../api/schema";
import { useCan } from "../../api/session";
import { t } from "../../language";
import { confirm } from "../../parts/dialog";
import { Loaded } from "../../parts/problem";
import { query } from "../../router";
import { EffectiveDialog } from "./effective";
import { RoleDialog } from "./role-dialog";
import { words } from "./words";

export function RolesTab() {
  const wanted = query.value.get("role");
  const [editing, setEditing] = useState<Role | "new" | null>(null);
  const [shown, setShown] = useState<string | null>(null);
  const [mayCreate, mayUpdate, mayDelete] = useCan(["create", "update", "delete"].map((verb) => ({ cluster: "-", resource: "accessroles.fairlead.dev", verb })));
  const read = useFetch("roles", (signal) => api.get<Roles>("/roles", { signal }));
  const remove = ({ name }: Role) =>
    confirm({
      title: t("Delete the role {name}?", { name }),
      text: t("A role that somebody has is not deleted: take it from its users first."),
      verb: t("Delete"),
      danger: true,
      name,
      run: async () => {
        await api.delete(path`/roles/${name}`);
        read.reload();
      },
    });
  return (
    <Loaded of={read}>
      {({ roles }) => (
        <>
          <div class="row">
            <span class="muted">{t("Deny wins; what no rule allows is refused.")}</span>
            <span class="grow" />
            {mayCreate && <button type="button" class="button" onClick={() => setEditing("new")}>{t("Make a role")}</button>}
          </div>
          {[...roles].sort((a, b) => Number(b.name === wanted) - Number(a.name === wanted)).map((role) => (
            <section key={role.name} class="card" aria-label={t("Role {name}", { name: role.name })}>
              <header>
                <h2 class="break">{role.name}</h2>
                {role.builtIn && <span class="tag">{t("built in")}</span>}
                <span class="grow" />
                <button type="button" class="button quiet" onClick={() => setShown(role.name)}>{t("Effective rights")}</button>
                {mayUpdate && !role.builtIn && <button type="button" class="button quiet" onClick={() => setEditing(role)}>{t("Change")}</button>}
                {mayDelete && !role.builtIn && <button type="button" class="button quiet" onClick={() => remove(role)}>{t("Delete")}</button>}
              </header>
              <div class="body stack">
                {role.allow.map((rule) => <p key={JSON.stringify(rule)} class="break"><span class="ok-text">{t("may")}</span> {words(rule)}</p>)}
                {role.deny.map((rule) => <p key={JSON.stringify(rule)} class="break"><span class="bad-text">{t("may not")}</span> {words(rule)}</p>)}
                {role.allow.length === 0 && <p class="muted">{t("It allows nothing.")}</p>}
                {(role.problems ?? []).map((text) => <p key={text} class="bad-text">{text}</p>)}
              </div>
            </section>
          ))}
          {editing && <RoleDialog role={editing === "new" ? null : editing} onClose={(changed) => { setEditing(null); if (changed) read.reload(); }} />}
          {shown && <EffectiveDialog of={t("the role {shown}", { shown })} route={path`/roles/${shown}/effective`} onClose={() => setShown(null)} />}
        </>
      )}
    </Loaded>
  );
}
