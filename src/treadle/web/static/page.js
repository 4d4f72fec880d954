// What the modules share: the frame's data, small elements, toasts, and asking the server.
import { tellTime } from "./clock.js";

const root = document.documentElement;

export const prefix = root.dataset.root;
export const url = (path) => prefix + path;
export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// What turns the direction of a text, or hides in it, is shown by its number: as the server does (core/text.py).
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]/g;
export const shown = (text) => text.replace(HIDDEN, (it) => "\\u" + it.charCodeAt(0).toString(16).padStart(4, "0"));

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((it) => typeof it === "string" ? shown(it) : it));
  return made;
}

export function toast(text, bad = false) {
  const close = element("button", { type: "button", "aria-label": "Close" }, "×");
  const made = element("div", { class: bad ? "toast bad" : "toast" }, element("span", {}, text), close);
  close.addEventListener("click", () => made.remove());
  $("#toasts").append(made);
  if (!bad) setTimeout(() => made.remove(), 6000);
}

export const changed = () => document.dispatchEvent(new CustomEvent("treadle:changed"));

/** GET a page's inside: {status, text, etag}. Never throws: status 0 is no answer. */
export async function part(address, headers = {}) {
  const sent = performance.now();
  try {
    const answer = await fetch(address, { headers: { "HX-Request": "true", ...headers } });
    tellTime(+answer.headers.get("Treadle-Time"), sent, performance.now());
    const version = answer.headers.get("Treadle-Version");
    if (version && version !== root.dataset.version) newVersion();
    if (answer.status === 401) expired();
    return { status: answer.status, text: await answer.text(), etag: answer.headers.get("ETag"), id: answer.headers.get("X-Request-Id"), who: answer.headers.get("Treadle-Who") };
  } catch {
    return { status: 0, text: "", etag: null, id: null };
  }
}

/** Nobody is logged in any more: see session.js. */
export const expired = () => document.dispatchEvent(new CustomEvent("treadle:expired"));

let told = false;
function newVersion() {
  if (told) return;
  told = true;
  toast("A new version is running: reload the page.", true);
}

export function problem(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return "The server did not answer as it should; try again.";
  }
}

export function cookie(name, value) {
  document.cookie = `treadle_${name}=${value};path=${prefix || "/"};max-age=31536000;samesite=lax`;
}
