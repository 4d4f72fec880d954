// Completion in the filter box: keys, then their values.
import { $, element, url } from "./page.js";

let found = { start: 0, end: 0, items: [] };
let at = -1;
let asked = 0;
let of = null; // the text that was completed

const box = () => $("#filter");
const list = () => $("#complete");

function close() {
  list()?.remove();
  box().setAttribute("aria-expanded", "false");
  box().removeAttribute("aria-activedescendant");
  at = -1;
}

async function complete() {
  const own = ++asked;
  const query = new URLSearchParams({ text: box().value, at: box().selectionStart });
  let told;
  try {
    const answer = await fetch(url(`/api/v1/complete?${query}`));
    told = answer.ok && await answer.json();
  } catch { return; }
  // Looked at only now: while an answer was read, a later one may have come.
  if (own !== asked || !told || document.activeElement !== box()) return;
  found = told;
  of = query.get("text");
  at = -1;
  draw();
}

function draw() {
  list()?.remove();
  if (!found.items.length) return close();
  const rows = found.items.slice(0, 12).map((it, n) => {
    const row = element("li", { role: "option", id: `complete-${n}`, "aria-selected": String(n === at) }, element("span", {}, it.text), element("small", { class: "soft" }, it.about ?? ""));
    row.addEventListener("mousedown", (event) => { event.preventDefault(); take(it); });
    return row;
  });
  $(".find").append(element("ul", { id: "complete", class: "complete", role: "listbox", "aria-label": "Completions" }, ...rows));
  box().setAttribute("aria-expanded", "true");
  if (at >= 0) box().setAttribute("aria-activedescendant", `complete-${at}`);
}

function take(it) {
  const text = box().value;
  const gap = it.kind === "key" || text[found.end] === " " ? "" : " ";
  box().value = text.slice(0, found.start) + it.text + gap + text.slice(found.end);
  const to = found.start + it.text.length + gap.length;
  box().setSelectionRange(to, to);
  close();
  if (it.kind === "key") complete();
}

export function startFilter() {
  const it = box();
  it.setAttribute("role", "combobox");
  it.setAttribute("aria-autocomplete", "list");
  it.setAttribute("aria-expanded", "false");
  it.setAttribute("aria-controls", "complete");
  let wait;
  it.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(complete, 120); });
  it.addEventListener("blur", close);
  let taking = null; // a completion that was asked for before it was found
  it.addEventListener("keydown", (event) => {
    if (taking && event.key === "Enter") { event.preventDefault(); taking.then(() => it.form.requestSubmit()); return; }
    if (!list()) return;
    if (event.key === "Tab" && of !== it.value) {
      event.preventDefault();
      clearTimeout(wait);
      taking = complete().then(() => { taking = null; if (of === it.value && found.items.length) take(found.items[0]); });
      return;
    }
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); at = (at + by + found.items.length) % found.items.length; draw(); }
    else if (event.key === "Tab" || (event.key === "Enter" && at >= 0)) { event.preventDefault(); take(found.items[Math.max(0, at)]); }
    else if (event.key === "Escape") { event.stopPropagation(); close(); }
  });
}
