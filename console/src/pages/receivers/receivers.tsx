/** Who is told of events, how each fares, and the rules that say what is done about an event. */
import { Tabs, tabOf, type Tab } from "../../parts/tabs";
import { ReceiversTab } from "./receivers-tab";
import { ResponsesTab } from "./responses-tab";

const TABS: Tab[] = [
  { id: "receivers", title: "Receivers" },
  { id: "responses", title: "Response rules" },
];

export default function Receivers() {
  const tab = tabOf(TABS);
  return (
    <div class="page">
      <header>
        <h1>Receivers</h1>
      </header>
      <Tabs label="Parts of receivers" tabs={TABS} />
      {tab === "receivers" && <ReceiversTab />}
      {tab === "responses" && <ResponsesTab />}
    </div>
  );
}
