/** Admission: the rules in their order, what was decided, and a place to try manifests. */
import { t } from "../../language";
import { Lazy } from "../object/lazy";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { AuditTab } from "./audit";
import { RulesTab } from "./rules";
import { RunningTab } from "./running";

const TABS: Tab[] = [
  { id: "rules", title: t("Rules") },
  { id: "audit", title: t("Decisions") },
  { id: "running", title: t("Running against them") },
  { id: "try", title: t("Playground") },
];

export default function Admission() {
  const tab = tabOf(TABS);
  return (
    <div class="page">
      <header>
        <h1>{t("Admission")}</h1>
      </header>
      <Tabs label={t("Parts of admission")} tabs={TABS} />
      {tab === "rules" && <RulesTab />}
      {tab === "audit" && <AuditTab />}
      {tab === "running" && <RunningTab />}
      {tab === "try" && <Lazy load={() => import("./playground")} props={{}} />}
    </div>
  );
}
