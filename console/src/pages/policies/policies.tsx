/** Network policies: where they are in force, in which order they decide, and why a connection passes or not. */
import { t } from "../../language";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { ExplainTab } from "./explain";
import { InForceTab } from "./in-force";
import { StatusTab } from "./status";
import "./policies.css";

const TABS: Tab[] = [
  { id: "status", title: t("Enforcement") },
  { id: "list", title: t("In the order they decide") },
  { id: "explain", title: t("Why does it pass?") },
];

export default function Policies() {
  const tab = tabOf(TABS);
  return (
    <div class="page policies">
      <header>
        <h1>{t("Policies")}</h1>
      </header>
      <Tabs label={t("Parts of policies")} tabs={TABS} />
      {tab === "status" && <StatusTab />}
      {tab === "list" && <InForceTab />}
      {tab === "explain" && <ExplainTab />}
    </div>
  );
}
