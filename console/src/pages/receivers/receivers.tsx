/** Who is told of events, how each fares, and the rules that say what is done about an event. */
import { t } from "../../language";
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { ReceiversTab } from "./receivers-tab";
import { ResponsesTab } from "./responses-tab";

const TABS: Tab[] = [
  { id: "receivers", title: t("Receivers") },
  { id: "responses", title: t("Response rules") },
];

export default function Receivers() {
  const tab = tabOf(TABS);
  return (
    <div class="page">
      <header>
        <h1>{t("Receivers")}</h1>
      </header>
      <Tabs label={t("Parts of receivers")} tabs={TABS} />
      {tab === "receivers" && <ReceiversTab />}
      {tab === "responses" && <ResponsesTab />}
    </div>
  );
}
