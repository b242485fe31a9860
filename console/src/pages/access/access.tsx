/** Who may do what: users, roles with what they add up to, tokens, and what was done. */
import { t } from "../../language";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { AuditTab } from "./audit";
import { RolesTab } from "./roles";
import { TokensTab } from "./tokens";
import { UsersTab } from "./users";
import "./access.css";

const TABS: Tab[] = [
  { id: "users", title: t("Users") },
  { id: "roles", title: t("Roles") },
  { id: "tokens", title: t("Tokens") },
  { id: "audit", title: t("Audit") },
];

export default function Access() {
  const tab = tabOf(TABS);
  return (
    <div class="page">
      <header>
        <h1>{t("Access")}</h1>
      </header>
      <Tabs label={t("Parts of access")} tabs={TABS} />
      {tab === "users" && <UsersTab />}
      {tab === "roles" && <RolesTab />}
      {tab === "tokens" && <TokensTab />}
      {tab === "audit" && <AuditTab />}
    </div>
  );
}
