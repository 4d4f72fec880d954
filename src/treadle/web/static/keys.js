// The keyboard. Single letters never fire in a text field, and can be switched off.
import { $, $$, cookie, url } from "./page.js";
import { toggle } from "./live.js";
import { tick, untick } from "./selection.js";
import { ask } from "./forms.js";
import { openPalette } from "./palette.js";

const pages = { o: "/", j: "/jobs", f: "/failures", q: "/queues", p: "/pods", s: "/schedules", t: "/performance", l: "/limits", a: "/operations", y: "/system" };
const root = document.documentElement;
let went = 0; // when g was pressed

const rows = () => $$("[data-rows] tbody tr[data-href]");
let place = null; // the address of the row under the cursor: a live update brings the rows anew
const current = () => rows().find((it) => it.dataset.href === place);

function showCursor() {
  const row = current();
  for (const it of $$("tr[data-cursor]")) if (it !== row) it.removeAttribute("data-cursor");
  if (row) row.dataset.cursor = "";
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(current());
  const to = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
  place = to.dataset.href;
  showCursor();
  to.scrollIntoView({ block: "nearest" });
  $("a", to)?.focus({ preventScroll: true });
}

function tickRow(range) {
  const box = current() && $("input[name=id]", current());
  if (!box) return;
  box.checked = range || !box.checked;
  tick(box, range);
}

export function theme() {
  const next = { undefined: "dark", dark: "light", light: "system" }[root.dataset.theme] ?? "dark";
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  cookie("theme", next);
  document.dispatchEvent(new CustomEvent("treadle:theme"));
}

export function zone() {
  root.dataset.zone = root.dataset.zone === "local" ? "utc" : "local";
  cookie("zone", root.dataset.zone);
  document.dispatchEvent(new CustomEvent("treadle:zone"));
}

function press(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openPalette(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (event.key === "Escape" && !$$("dialog").some((it) => it.open)) {
    if (typing) event.target.blur();
    else untick();
    return;
  }
  if (typing || root.dataset.keys === "off" || $$("dialog").some((it) => it.open)) return;
  if (Date.now() - went < 1500 && pages[event.key]) { went = 0; location.assign(url(pages[event.key])); return; }
  const doing = {
    g: () => { went = Date.now(); },
    j: () => move(1),
    k: () => move(-1),
    x: () => tickRow(false),
    X: () => tickRow(true),
    "/": () => $("#filter").select(),
    ".": toggle,
    t: theme,
    u: zone,
    "?": () => ask(url("/help")),
  }[event.key];
  const wanted = doing ? null : $$(`[data-key="${CSS.escape(event.key)}"]`).find((it) => it.checkVisibility());
  if (!doing && !wanted) return;
  event.preventDefault();
  if (doing) doing();
  else wanted.click();
}

export function startKeys() {
  document.addEventListener("keydown", press);
  document.addEventListener("treadle:swapped", showCursor);
  $("#theme-form").addEventListener("submit", (event) => { event.preventDefault(); theme(); });
}
