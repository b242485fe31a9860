/** Who talks to whom: conversations and their graph, groups, rules, violations. */
import { t } from "../../language";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { ConversationsTab } from "./conversations";
import { GraphTab } from "./graph-tab";
import { GroupsTab } from "./groups";
import { RulesTab } from "./rules";
import { ViolationsTab } from "./violations";

const TABS: Tab[] = [
  { id: "graph", title: t("Graph") },
  { id: "conversations", title: t("Conversations") },
  { id: "violations", title: t("Violations") },
  { id: "rules", title: t("Rules") },
  { id: "groups", title: t("Groups") },
];

export default function Traffic() {
  const tab = tabOf(TABS);
  return (
    <div class={`page${tab === "conversations" || tab === "violations" || tab === "graph" ? " full" : ""}`}>
      <header>
        <h1>{t("Traffic")}</h1>
      </header>
      <Tabs label={t("Parts of the traffic")} tabs={TABS} />
      {tab === "graph" && <GraphTab />}
      {tab === "conversations" && <ConversationsTab />}
      {tab === "violations" && <ViolationsTab />}
      {tab === "rules" && <RulesTab />}
      {tab === "groups" && <GroupsTab />}
    </div>
  );
}
