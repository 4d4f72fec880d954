// The command palette: pages, what can be done here, and what the server finds for the typed words: verbs with their
// subjects ("pause mail"), which open the question that the pages ask, too. Words that people use elsewhere find ours.
import { $, $$, element, url } from "./page.js";
import { ask } from "./forms.js";

const others = { Revive: "retry rerun again", Cancel: "abort kill stop", Delete: "remove purge", Operations: "audit log bulk", Performance: "timings metrics latency", Pods: "workers", Schedules: "cron periodic", Failures: "errors dead", Overview: "home dashboard" };
let local = [];
let found = []; // by the server, for the text `of`
let of = "";
let shown = [];
let at = 0;
let wait;

const box = () => $("#palette");
const typed = () => $("input", box()).value.trim();
const to = (address) => () => location.assign(address);

function here() {
  const pages = $$(".rail li a").map((it) => ({ word: it.textContent.trim(), kind: "page", go: to(it.href) }));
  const acts = $$("#view .head .button, #view .picked .button").filter((it) => it.checkVisibility()).map((it) => ({ word: it.textContent.trim(), kind: "here", go: () => it.click() }));
  return [...acts, ...pages];
}

async function look() {
  clearTimeout(wait);
  const text = typed();
  if (text === of) return;
  let items = [];
  try {
    const answer = await fetch(url(`/api/v1/palette?${new URLSearchParams({ text })}`));
    if (answer.ok) items = (await answer.json()).items;
  } catch { /* the pages are there all the same */ }
  if (!box().open || text !== typed()) return;
  of = text;
  found = items.map((it) => ({ word: it.title, kind: it.kind, go: it.asks ? () => ask(it.url) : to(it.url) }));
  draw();
}

function draw() {
  const words = typed().toLowerCase().split(" ");
  const fits = (it) => words.every((word) => `${it.word} ${it.kind} ${others[it.word] ?? ""}`.toLowerCase().includes(word));
  shown = [...local.filter(fits), ...(typed() ? found : [])].slice(0, 30);
  if (typed()) shown.push({ word: `Find jobs: ${typed()}`, kind: "filter", go: to(url(`/jobs?filter=${encodeURIComponent(typed())}`)) });
  at = Math.min(at, Math.max(0, shown.length - 1));
  $("ul", box()).replaceChildren(...shown.map((it, n) => {
    const row = element("li", { role: "option", id: `palette-${n}`, "aria-selected": String(n === at) }, element("span", {}, it.word), element("small", {}, it.kind));
    row.addEventListener("click", () => choose(it));
    return row;
  }));
  $("input", box()).setAttribute("aria-activedescendant", shown.length ? `palette-${at}` : "");
  $(`#palette-${at}`)?.scrollIntoView({ block: "nearest" });
}

function choose(it) {
  box().close();
  it?.go();
}

export function openPalette() {
  if (box().open) return;
  local = here();
  found = [];
  of = "";
  at = 0;
  const input = element("input", { type: "text", role: "combobox", "aria-label": "Find a page, an action, a queue, a task, a schedule, a pod or a job", "aria-expanded": "true", "aria-controls": "palette-list", placeholder: "Go to, or do: pause mail, retry failures of …", autocomplete: "off", maxlength: "200" });
  box().replaceChildren(input, element("ul", { id: "palette-list", role: "listbox", "aria-label": "Found" }));
  box().showModal();
  draw();
}

export function startPalette() {
  box().addEventListener("input", () => { at = 0; draw(); clearTimeout(wait); wait = setTimeout(look, 100); });
  box().addEventListener("keydown", async (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); at = (at + by + shown.length) % Math.max(1, shown.length); draw(); }
    else if (event.key === "Enter") {
      event.preventDefault();
      await look(); // what was typed counts, however fast
      if (box().open) choose(shown[at]);
    }
  });
  box().addEventListener("click", (event) => event.target === box() && box().close());
}
