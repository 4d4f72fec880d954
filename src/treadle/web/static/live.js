// A stream of hints, shared by the tabs (see tabs.js). A hint is no data: it says what may have changed, and the page asks
// for its inside again, with the ETag it has. What comes back is morphed in: nodes, focus, ticks and scroll stay.
// The mark in the top bar says what is true of both: whether the stream is open, and whether the last answer was good.
import { tellCharts } from "./charts.js";
import { isSet } from "./clock.js";
import { $, $$, changed, element, part } from "./page.js";
import { askToLogIn, check, isOut, loggedIn } from "./session.js";
import { join, leave, startTabs, tellSession } from "./tabs.js";

const POLL = 5000;
const LEAST = 250; // between two refetches
const LATE = 2300;
const MOVING = 2000;
const SLOW = 10000; // what only tells that time goes on

let paused = false;
let etag = null;
let pending = null;
let waiting = false; // something changed while it could not be shown
let late = null;
let poll = null;
let fresh = Date.now();
let busy = false;
let stream = "reconnecting"; // or live, polling
let trouble = null; // the last answer, if it was none that could be shown

const view = () => $("#view");
const topics = () => (view().dataset.topics || "").split(" ").filter(Boolean);

/** What is true now, the worst first. */
function state() {
  if (paused) return "paused";
  if (isOut()) return "logged out";
  if (!trouble) return stream;
  if (trouble.storage) return `storage ${trouble.storage}`;
  return trouble.status ? "out of date" : navigator.onLine ? "reconnecting" : "offline";
}

function mark(now = stream) {
  stream = now;
  const button = $("#live");
  const said = state();
  button.dataset.live = said;
  button.hidden = !topics().length;
  $("[data-word]", button).textContent = said;
  button.setAttribute("aria-label", `Live updates: ${said}. ${isOut() ? "Log in" : paused ? "Go on" : "Pause"}`);
}

/** Whether a swap would disturb somebody just now. */
function held() {
  const at = document.activeElement;
  const typing = at && view().contains(at) && at.matches("input:not([type=checkbox]), textarea, select");
  return paused || typing || $$("dialog").some((it) => it.open);
}
const ticked = () => $("input[name=id]:checked", view()) !== null;

/** Asked for whatever is open: the mark must be true. What comes back waits while it would disturb somebody. */
export async function refresh(force = false) {
  if (busy) { pending ??= setTimeout(() => { pending = null; refresh(force); }, LEAST); return; }
  if (!force && paused) { waiting = true; return; }
  busy = true;
  const asked = location.href;
  const answer = await part(asked, etag && !force ? { "If-None-Match": etag } : {});
  busy = false;
  if (asked !== location.href) return;
  if (answer.status !== 304 && answer.status !== 200) return stale(answer);
  const mayShow = force || !(held() || ticked());
  waiting = !mayShow && answer.status === 200;
  if (waiting && ticked()) for (const it of $$("[data-fresh]")) it.hidden = false;
  // Somebody else has logged in, in another tab: what this page offers is not his.
  if (answer.who && answer.who !== document.documentElement.dataset.who) { if (mayShow) location.reload(); return; }
  if (waiting) return settled();
  if (answer.status === 200) {
    etag = answer.etag;
    await swap(answer.text);
  }
  well();
}

async function swap(text) {
  if (!window.htmx) return;
  // What a reader has opened stays open; what has an id and was closed stays closed.
  const was = new Map($$("details", view()).filter((it) => it.open || it.id).map((it) => [key(it), it.open]));
  const scrolled = $$(".scroll, .value-box, .trace", view()).map((it) => [it.scrollLeft, it.scrollTop]);
  await window.htmx.swap({ text, target: "#view", swap: "outerMorph", sourceElement: view() });
  for (const it of $$("details", view())) if (was.has(key(it))) it.open = was.get(key(it));
  $$(".scroll, .value-box, .trace", view()).forEach((it, n) => { if (scrolled[n]) [it.scrollLeft, it.scrollTop] = scrolled[n]; });
  for (const it of $$("[data-script]", view())) it.hidden = false;
  document.dispatchEvent(new CustomEvent("treadle:swapped"));
  announce();
}
const key = (it) => it.id || `${it.closest("[id]")?.id}/${it.querySelector("summary")?.textContent}`;

function well() {
  fresh = Date.now();
  settled();
}

function settled() {
  trouble = null;
  loggedIn();
  delete view().dataset.stale;
  $("#stale")?.remove();
  if (stream === "live") stopPolling();
  mark();
}

function fields(text) {
  try { return JSON.parse(text).error ?? {}; } catch { return {}; }
}

function stale(answer) {
  const said = fields(answer.text);
  trouble = { status: answer.status, storage: said.fields?.storage };
  view().dataset.stale = "";
  let note = $("#stale");
  if (!note) {
    note = element("p", { id: "stale", class: "banner bad", role: "status" });
    view().before(note);
  }
  const age = Math.round((Date.now() - fresh) / 1000);
  const id = answer.id && !isOut() ? `, request ${answer.id}` : "";
  const why = isOut() ? "You are logged out" : trouble.storage === "away" ? "The storage cannot be reached" : trouble.storage ? said.message : answer.status ? "Could not refresh" : "The server does not answer";
  note.textContent = `${why}: what you see is ${age} s old${id}. ${isOut() ? "" : "It tries again by itself. "}`;
  const button = element("button", { class: "button slim", type: "button" }, isOut() ? "Log in" : "Try again");
  button.addEventListener("click", () => (isOut() ? askToLogIn() : refresh(true)));
  note.append(button);
  if (!isOut()) startPolling();
  mark();
}

let announced = 0;
function announce() {
  if (Date.now() - announced < 5000) return;
  announced = Date.now();
  const said = $("[data-total]", view())?.dataset.total;
  if (said) $("#announcer").textContent = `${said} jobs`;
}

function hint() {
  if (!pending) pending = setTimeout(() => { pending = null; refresh(); }, LEAST);
  // Counts may be two seconds old on the server: what this hint is about may show only after that.
  clearTimeout(late);
  late = setTimeout(() => refresh(), LATE);
}

/** Numbers, not a hint. Charts take them in; the rest of the page is asked for when a new step begins, or now and then. */
function numbers(news) {
  const points = view().dataset.points;
  const came = points ? tellCharts({ ...news, series: news.charts?.[points] }) : "none";
  if (came === "gap") hint();
  else if (came !== "kept" && Date.now() - fresh > SLOW) refresh();
}

const shared = {
  wants: () => ({ topics: topics(), charts: [view().dataset.points].filter(Boolean) }),
  event(topic, data) {
    if (!topics().includes(topic)) return;
    if (topic === "metrics") numbers(JSON.parse(data));
    else hint();
  },
  /** What happened while no stream was open is asked for when one is; and when it is refused, for the reason. */
  state(now, isNew) {
    const had = stream;
    mark(now);
    if (now !== "live") startPolling();
    else if (!trouble) stopPolling();
    if (isNew || (now === "polling" && had !== now)) refresh();
  },
  session(is) {
    if (is === "in" && isOut()) check();
    else if (is === "out" && !isOut() && !document.hidden) refresh();
  },
};

function connect() {
  if (paused || isOut() || document.hidden || !topics().length) return;
  startPolling(); // until the stream is open: a page never waits for it alone
  join();
}

function drop() {
  leave();
  stopPolling();
}

function startPolling() {
  poll ??= setInterval(() => { if (!document.hidden && !paused) refresh(); }, POLL);
}
function stopPolling() {
  clearInterval(poll);
  poll = null;
}

export function toggle() {
  if (isOut()) { askToLogIn(); return; }
  paused = !paused;
  if (paused) { drop(); clearTimeout(late); mark("paused"); }
  else { mark("reconnecting"); connect(); refresh(true); }
}

export function startLive() {
  if (!view()) return;
  mark("reconnecting");
  startTabs(shared);
  $("#live").addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) drop();
    else if (isOut()) check();
    else if (!paused) { mark("reconnecting"); connect(); }
  });
  document.addEventListener("treadle:out", () => { drop(); mark("reconnecting"); tellSession("out"); });
  document.addEventListener("treadle:in", () => { settled(); connect(); refresh(); tellSession("in"); });
  for (const it of ["online", "offline"]) addEventListener(it, () => { mark(); refresh(); });
  document.addEventListener("treadle:changed", () => refresh(true));
  document.addEventListener("treadle:unticked", () => waiting && refresh());
  document.addEventListener("focusout", () => setTimeout(() => waiting && refresh(), 50));
  document.addEventListener("close", () => setTimeout(() => waiting && refresh(), 50), true);
  document.addEventListener("click", (event) => event.target.closest?.("[data-show]") && refresh(true));
  addEventListener("pagehide", stopPolling);
  addEventListener("pageshow", (event) => event.persisted && connect());
  // What runs tells of its progress without a hint; and the server alone knows what time it is once the clock was set.
  setInterval(() => { if (stream === "live" && !document.hidden && (isSet() || $("[data-moving]", view()))) refresh(); }, MOVING);
  if (window.htmx) connect();
  else mark("paused");
}

export { changed };
