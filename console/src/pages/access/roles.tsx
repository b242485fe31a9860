/** Roles: what each allows and denies, in words. */
import { api } from "../../api/client";
import { useFetch } from "../../api/fetching";
import type { Role, Roles, Rule } from "../../api/schema";
import { Loaded } from "../../parts/problem";
import { query } from "../../router";

/** One rule as a sentence. */
export function words({ clusters, namespaces, resources, verbs }: Rule): string {
  const all = (items: string[], every: string, one: string, many: string) => (items.includes("*") ? every : `${items.length > 1 ? many : one} ${items.join(", ")}`);
  const fleet = clusters.length === 1 && clusters[0] === "-";
  const does = verbs.includes("*") ? "do everything with" : verbs.join(", ");
  const what = resources.includes("*") ? "everything" : resources.join(", ");
  if (fleet) return `${does} ${what} of the fleet itself`;
  return `${does} ${what}, in ${all(namespaces, "all namespaces", "namespace", "namespaces")} of ${all(clusters, "all clusters", "cluster", "clusters")}`;
}

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
