import { render } from "preact";
import { askWho } from "./api/session";
import { App, preload } from "./app";
import "./design/index.css";
import { startFleet } from "./fleet";
import { startKeys } from "./keys";
import { warm } from "./live/live";
import { firstSubscription } from "./live/table";
import { startClock } from "./parts/time";
import { address, startRouter } from "./router";
import { startSaved } from "./saved";
import { startTheme } from "./theme";

startTheme();
startRouter();
startKeys();
startClock();
startSaved();
startFleet();
void askWho();
// All of it at once, and not one after the other: who one is, the page's code, the socket, the rows.
preload(address.value.path);
warm({ topic: "clusters" });
const first = firstSubscription(address.value.path, address.value.query);
if (first) warm(first);

const root = document.getElementById("app");
if (root) render(<App />, root);
