import { render } from "preact";
import { askWho } from "./api/session";
import { App } from "./app";
import "./design/index.css";
import { startFleet } from "./fleet";
import { startKeys } from "./keys";
import { startClock } from "./parts/time";
import { startRouter } from "./router";
import { startTheme } from "./theme";

startTheme();
startRouter();
startKeys();
startClock();
startFleet();
void askWho();

const root = document.getElementById("app");
if (root) render(<App />, root);
