// Everything works without this, but live updates and charts. Each module has one subject.
import { startTimes } from "./times.js";
import { startLive } from "./live.js";
import { startSession } from "./session.js";
import { startForms } from "./forms.js";
import { startSelection } from "./selection.js";
import { startKeys } from "./keys.js";
import { startPalette } from "./palette.js";
import { startFilter } from "./filter.js";
import { startCharts } from "./charts.js";
import { startLogs } from "./logs.js";

for (const it of document.querySelectorAll("[data-script]")) it.hidden = false;
startTimes();
startSession();
startForms();
startSelection();
startFilter();
startPalette();
startKeys();
startCharts();
startLogs();
startLive();
document.documentElement.dataset.ready = "";
