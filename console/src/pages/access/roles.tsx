/** Roles: what each allows and denies, in words. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Role, Roles } from "../../api/schema";
import { Loaded } from "../../parts/problem";
import { query } from "../../router";
import { words } from "./words";

export function RolesTab() {
  const wanted = query.value.get("role");
  const read = useFetch("roles", (signal) => api.get<Roles>("/roles", { signal }));
  return (
    <Loaded of={read}>
      {({ roles }) => (
        <>
          {[...roles].sort((a, b) => Number(b.name === wanted) - Number(a.name === wanted)).map((role) => <One key={role.name} role={role} />)}
          <p class="muted">Deny wins; what no rule allows is refused. Roles are written as files: <code>fairlead roles apply -f FILE</code>.</p>
        </>
      )}
    </Loaded>
  );
}

function One({ role }: { role: Role }) {
  return (
    <section class="card" aria-label={`Role ${role.name}`}>
      <header>
        <h2>{role.name}</h2>
        {role.builtIn && <span class="tag">built in</span>}
      </header>
      <div class="body stack">
        {role.allow.map((rule) => <p key={JSON.stringify(rule)}><span class="ok-text">may</span> {words(rule)}</p>)}
        {role.deny.map((rule) => <p key={JSON.stringify(rule)}><span class="bad-text">may not</span> {words(rule)}</p>)}
        {role.allow.length === 0 && <p class="muted">It allows nothing.</p>}
        {(role.problems ?? []).map((text) => <p key={text} class="bad-text">{text}</p>)}
      </div>
    </section>
  );
}
