// Relative times go on by themselves, in the same words as the server's; absolute ones are local if one wants.
import { now } from "./clock.js";
import { $$ } from "./page.js";

const steps = [[60, 1, "s"], [3600, 60, "m"], [86400, 3600, "h"], [Infinity, 86400, "d"]];

export function ago(at, to = now()) {
  const away = (to - at) / 1000;
  const size = Math.abs(away);
  if (size < 1) return "now";
  const [, by, unit] = steps.find(([limit]) => size < limit);
  const said = `${Math.floor(size / by)}${unit}`;
  return away > 0 ? `${said} ago` : `in ${said}`;
}

function tick() {
  const to = now();
  const local = document.documentElement.dataset.zone === "local";
  for (const it of $$("time[data-ago], time[data-clock]")) {
    const at = Date.parse(it.dateTime);
    if (Number.isNaN(at)) continue;
    const said = "ago" in it.dataset ? ago(at, to) : clock(new Date(at), local);
    if (it.textContent !== said) it.textContent = said;
    if (local && "ago" in it.dataset && it.dataset.said !== it.dateTime) {
      it.dataset.said = it.dateTime;
      it.title = new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    }
  }
}

function clock(at, local) {
  const iso = local ? new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString() : at.toISOString();
  return iso.slice(11, 23);
}

export function startTimes() {
  tick();
  setInterval(() => document.hidden || tick(), 1000);
  document.addEventListener("treadle:swapped", tick);
  document.addEventListener("treadle:zone", tick);
}
