// When the session is over: a dialog that logs in where one is. The page, its scroll and what is typed stay.
import { $, element, part, problem, url } from "./page.js";

const root = document.documentElement;
const box = () => $("#login");
let out = false;

export const isOut = () => out;

/** Asked for anew each time: the form is the server's, and knows who may log in how. */
export async function askToLogIn() {
  if (box().open) return;
  const answer = "login" in root.dataset ? await part(url("/login"), { "Treadle-Dialog": "1" }) : { status: 204 };
  if (box().open || (answer.status !== 200 && answer.status !== 204)) return;
  box().replaceChildren(answer.status === 200 ? new DOMParser().parseFromString(answer.text, "text/html").body.firstElementChild : elsewhere());
  box().showModal();
  $("input[name=token], .primary", box()).focus();
}

/** Who logs people in is not this dashboard: it can only be looked whether they are in again. */
function elsewhere() {
  const later = element("button", { type: "button", class: "button", value: "later" }, "Not now");
  const words = element("p", {}, "Log in again where you did before, in another tab, and go on here: what you have typed is still there.");
  return element("form", { class: "panel ask login" },
    element("header", {}, element("h1", { id: "login-title" }, "Your session has expired")),
    element("div", { class: "body stack" }, words),
    element("footer", {}, later, element("button", { class: "button primary" }, "Go on")));
}

/** An answer was 401. */
export function loggedOut() {
  if (out) return;
  out = true;
  document.dispatchEvent(new CustomEvent("treadle:out"));
  askToLogIn();
}

/** An answer was none: here, or in another tab of the same browser. */
export function loggedIn() {
  if (!out) return;
  out = false;
  if (box().open) box().close();
  document.dispatchEvent(new CustomEvent("treadle:in"));
}

/** Look whether somebody is in again. */
export async function check() {
  const answer = await part(location.href);
  if (answer.status !== 200) return;
  if (answer.who !== root.dataset.who) location.reload();
  else loggedIn();
}

async function send(form) {
  if (!form.elements.token) { check(); return; }
  const note = $("[data-problem]", form);
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "HX-Request": "true" } });
    const text = await answer.text();
    // Somebody else: this page was made for who was here before.
    if (answer.ok && JSON.parse(text).who !== root.dataset.who) { location.reload(); return; }
    if (answer.ok) { loggedIn(); return; }
    note.textContent = problem(text);
  } catch {
    note.textContent = "The server does not answer; try again.";
  }
  note.hidden = false;
  form.elements.token.select();
}

export function startSession() {
  document.addEventListener("treadle:expired", loggedOut);
  box().addEventListener("submit", (event) => { event.preventDefault(); send(event.target); });
  box().addEventListener("click", (event) => event.target.value === "later" && box().close());
  box().addEventListener("close", () => box().replaceChildren());
}
