// The command palette: pages, what can be done here, queues, tasks, a job's id. Words that people use elsewhere find
// ours: "retry" finds revive.
import { $, $$, element, url } from "./page.js";

const others = { Revive: "retry rerun again", Cancel: "abort kill stop", Delete: "remove purge", Operations: "audit log bulk", Performance: "timings metrics latency", Pods: "workers", Schedules: "cron periodic", Failures: "errors dead", Overview: "home dashboard" };
let items = [];
let shown = [];
let at = 0;
let names = null;

const box = () => $("#palette");

function here() {
  const pages = $$(".rail li a").map((it) => ({ word: it.textContent.trim(), kind: "page", go: () => location.assign(it.href) }));
  const acts = $$("#view .head .button, #view .picked .button").filter((it) => it.checkVisibility()).map((it) => ({ word: it.textContent.trim(), kind: "here", go: () => it.click() }));
  return [...acts, ...pages];
}

async function known() {
  if (names) return names;
  const found = [];
  for (const [kind, path, to] of [["queue", "/api/v1/queues?limit=200", "/queues/"], ["task", "/api/v1/tasks?limit=200", "/performance/task?task="]]) {
    try {
      const answer = await fetch(url(path));
      if (answer.ok) for (const it of (await answer.json()).items) found.push({ word: it.name, kind, go: () => location.assign(url(to + encodeURIComponent(it.name))) });
    } catch { /* the pages are there all the same */ }
  }
  names = found;
  return found;
}

function draw() {
  const text = $("input", box()).value.trim().toLowerCase();
  const fits = (it) => text.split(" ").every((word) => `${it.word} ${it.kind} ${others[it.word] ?? ""}`.toLowerCase().includes(word));
  shown = items.filter(fits).slice(0, 30);
  if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(text)) shown.unshift({ word: text, kind: "job", go: () => location.assign(url(`/jobs/${text}`)) });
  if (text) shown.push({ word: `Find jobs: ${text}`, kind: "filter", go: () => location.assign(url(`/jobs?filter=${encodeURIComponent($("input", box()).value.trim())}`)) });
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
  items = here();
  at = 0;
  const input = element("input", { type: "text", role: "combobox", "aria-label": "Find a page, an action, a queue, a task or a job", "aria-expanded": "true", "aria-controls": "palette-list", placeholder: "Go to, or do …", autocomplete: "off" });
  box().replaceChildren(input, element("ul", { id: "palette-list", role: "listbox", "aria-label": "Found" }));
  box().showModal();
  draw();
  known().then((found) => { items = [...here(), ...found]; if (box().open) draw(); });
}

export function startPalette() {
  box().addEventListener("input", () => { at = 0; draw(); });
  box().addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); at = (at + by + shown.length) % Math.max(1, shown.length); draw(); }
    else if (event.key === "Enter") { event.preventDefault(); choose(shown[at]); }
  });
  box().addEventListener("click", (event) => event.target === box() && box().close());
}
