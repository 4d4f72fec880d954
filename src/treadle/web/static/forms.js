// Forms and questions without leaving the page: a link with data-dialog opens in a dialog, a form with data-act is sent
// from where it stands, and what came of it is a toast. Without this module both are plain pages. While somebody types,
// the command below the form follows the fields, and a form with data-preview shows what they mean.
import { $, $$, changed, expired, part, problem, shown, toast } from "./page.js";

const dialog = () => $("#dialog");
let opener = null;

export async function ask(address, from = null) {
  opener = from;
  const answer = await part(address, { "Treadle-Dialog": "1" });
  if (answer.status === 401) return;
  if (answer.status !== 200) return toast(answer.status ? problem(answer.text) : "The server does not answer.", true);
  dialog().replaceChildren(new DOMParser().parseFromString(answer.text, "text/html").body.firstElementChild);
  for (const it of $$("noscript", dialog())) it.remove();
  for (const it of $$("[data-script]", dialog())) it.hidden = false;
  if (!dialog().open) dialog().showModal();
  ($("input:not([type=hidden]), select, textarea", dialog()) || $("button, a", dialog()))?.focus();
}

async function send(form, submitter) {
  const body = new URLSearchParams(new FormData(form, submitter));
  const buttons = $$("button", form);
  for (const it of buttons) it.disabled = true;
  let said;
  try {
    const answer = await fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true" } });
    const text = await answer.text();
    if (answer.status === 401) expired();
    said = answer.ok ? JSON.parse(text) : { said: problem(text), bad: true, failed: true };
  } catch {
    said = { said: "The server does not answer; nothing may have been done.", bad: true, failed: true };
  }
  for (const it of buttons) it.disabled = false;
  const note = $("[data-problem]", form);
  if (said.failed && note) {
    note.textContent = said.said;
    note.hidden = false;
    note.scrollIntoView({ block: "nearest" });
    return;
  }
  if (said.go) { location.assign(said.go); return; }
  if (dialog().open && dialog().contains(form)) dialog().close();
  toast(said.said, said.bad);
  changed();
}

const quote = (it) => it === "…" || /^[\w@%+=:,./-]+$/.test(it) ? it : `'${it.replaceAll("'", `'"'"'`)}'`;

function asText(value) {
  try { JSON.parse(value); } catch { return value; }
  return JSON.stringify(value);
}

/** The command for the values of a form, as the server makes it (core/command_line.py): [text, whether it is whole]. */
export function commandOf({ head, parts = [], some }, valueOf) {
  const first = [];
  const then = [];
  let whole = true;
  for (const { flag, field, prefix = "", empty, ...it } of parts) {
    const value = field ? valueOf(field) : it.value ?? "";
    if (field && value === it.unless) continue;
    const into = flag ? then : first;
    if (!value && empty) into.push(...empty);
    else if (value || it.needed) {
      if (!value) whole = false;
      for (const one of it.several ? value.split(",").map((each) => each.trim()).filter(Boolean) : [value || "…"]) {
        if (flag) into.push(flag);
        into.push(prefix + (it.text ? asText(one) : one));
      }
    }
  }
  if (some && !then.length) { then.push("…"); whole = false; }
  const words = first.some((it) => it.startsWith("-")) ? [...head, ...then, "--", ...first] : [...head, ...first, ...then];
  return [words.map(quote).join(" "), whole && !words.some((it) => /\*\*\*|[\0-\x08\x0b-\x1f\x7f]/.test(it))];
}

function follow(form) {
  const box = form && $("[data-command]", form);
  if (!box) return;
  const [text, whole] = commandOf(JSON.parse(box.dataset.command), (name) => form.elements[`f-${name}`]?.value ?? "");
  const code = $("code", box);
  code.textContent = code.title = shown(text);
  $("button", box).dataset.copy = text;
  $("button", box).disabled = !whole;
}

let wait;
function preview(form) {
  const box = form && $("[data-preview]", form);
  if (!box) return;
  clearTimeout(wait);
  wait = setTimeout(async () => {
    const asked = () => new URLSearchParams(["expression", "tz"].map((name) => [name, form.elements[`f-${name}`].value])).toString();
    const query = asked();
    const to = box.dataset.preview;
    const answer = await part(`${to}${to.includes("?") ? "&" : "?"}${query}`, { "Treadle-Dialog": "1" });
    if (answer.status === 200 && query === asked()) box.replaceChildren(new DOMParser().parseFromString(answer.text, "text/html").body.firstElementChild);
  }, 200);
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    $("#announcer").textContent = "Copied";
    const was = button.title;
    button.title = "Copied";
    button.classList.add("good");
    setTimeout(() => { button.classList.remove("good"); button.title = was; }, 1500);
  } catch {
    toast("This browser does not let the page copy; select the text instead.", true);
  }
}

export function startForms() {
  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const to = event.target.closest("[data-dialog], [data-close], [data-copy]");
    if (!to) return;
    if ("copy" in to.dataset) { event.preventDefault(); copy(to); }
    else if ("close" in to.dataset && dialog().contains(to)) { event.preventDefault(); dialog().close(); }
    else if ("dialog" in to.dataset) { event.preventDefault(); ask(to.href, to); }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if ("act" in form.dataset) { event.preventDefault(); send(form, event.submitter); }
    else if (event.submitter && "ask" in event.submitter.dataset) {
      event.preventDefault();
      const query = new URLSearchParams(new FormData(form, event.submitter));
      if (query.has("all")) query.delete("id");
      ask(`${form.action}?${query}`, event.submitter);
    }
  });
  document.addEventListener("input", (event) => { follow(event.target.form); preview(event.target.form); });
  for (const it of $$("[data-command]")) follow(it.closest("form")); // a browser may bring back what was typed before
  dialog().addEventListener("close", () => {
    dialog().replaceChildren();
    if (opener?.isConnected) opener.focus();
    opener = null;
  });
  dialog().addEventListener("click", (event) => event.target === dialog() && dialog().close());
}
