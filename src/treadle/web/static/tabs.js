// One stream for all visible tabs of a browser: it has six connections to a server over HTTP/1.1, and with a stream in
// each window the seventh would hang. One tab holds the stream. The others say on a channel what they want of it, and
// hear there what it brings and how it is. Who holds it is decided by a Web Lock: the browser gives it to the next tab
// when one closes or crashes. Plain HTTP to another machine has no Web Locks; there it is a lease in localStorage, which
// the next tab takes at once when it is given back, and after a few seconds when its holder is gone without a word.
import { url } from "./page.js";

const BEAT = 5000;
const SILENT = 3 * BEAT; // who has said nothing for so long is gone, or hangs
const SETTLE = 50; // wants that come together become one stream
const GRACE = 2000; // to open a stream in the place of a tab that has gone
const TRY_AGAIN = 30000;
const LEASE = 6000;
const MOST_CHARTS = 8; // as the server takes them; other tabs ask for theirs now and then

// The address of a script has the mount point and a hash of all scripts in it: other versions share nothing.
const name = `${import.meta.url} ${document.documentElement.dataset.who}`;
const me = `${Math.random()}`;
const NOTHING = { kind: "state", state: "reconnecting", topics: [] };

let tab; // what this tab wants, and what it does with what comes
let channel = null;
let joined = null; // while this tab wants something
let holds = false;
let told = NOTHING; // the last word of the tab that holds the stream
let heard = 0;
let seen = null; // the stream that was last seen to be open
let source = null;
let coming = null; // the stream that will take its place once it is open
let opened = "";
let beat, soon, grace, again;
const wants = new Map();

const say = (message) => channel?.postMessage(message);
const want = () => say({ kind: "want", from: me, ...tab.wants() });
const unique = (all) => [...new Set(all)].sort();

function hear({ data }) {
  if (data.kind === "session") tab.session(data.is);
  else if (!joined) return;
  else if (data.kind === "gone") wants.delete(data.from);
  else if (data.kind === "want") {
    if (!holds) return;
    if (!wants.has(data.from)) say(told);
    wants.set(data.from, { ...data, at: Date.now() });
    settle();
  } else if (holds) return;
  else if (data.kind === "event") tab.event(data.topic, data.data);
  else {
    heard = Date.now();
    take(data);
    if (data.asks) want();
  }
}

/** The stream is live for a tab that gets all it wants of it. */
function take(said) {
  told = said;
  const lacks = said.state === "live" && !tab.wants().topics.every((it) => said.topics.includes(it));
  const isNew = said.state === "live" && !lacks && seen !== said.id;
  if (isNew) seen = said.id;
  tab.state(lacks ? "reconnecting" : said.state, isNew);
}

// The tab that holds the stream -----------------------------------------------------------------------------------

function tell(state, id = told.id) {
  clearTimeout(grace);
  take({ kind: "state", state, id, topics: source?.topics ?? [] });
  say(told);
}

function hold() {
  holds = true;
  wants.clear();
  grace = setTimeout(() => tell("reconnecting"), GRACE);
  say({ ...told, asks: true });
  settle();
}

function settle() {
  clearTimeout(soon);
  soon = setTimeout(open, SETTLE);
}

/** A stream of what all tabs want. The one before goes on until it is open: no hint is lost, and no mark flickers. */
function open() {
  const all = [tab.wants(), ...wants.values()];
  const topics = unique(all.flatMap((it) => it.topics));
  const charts = unique(all.flatMap((it) => it.charts)).slice(0, MOST_CHARTS);
  const address = url(`/api/v1/stream?${new URLSearchParams([["topics", topics], ...charts.map((it) => ["chart", it])])}`);
  if (address === opened) return;
  clearTimeout(again);
  opened = address;
  coming?.close();
  const made = coming = new EventSource(address);
  made.topics = topics;
  made.onopen = () => {
    if (made === coming) { source?.close(); source = made; coming = null; }
    tell("live", Math.random());
  };
  made.onerror = () => {
    if (made.readyState === EventSource.CONNECTING) { if (!source || made === source) tell("reconnecting"); return; }
    shut(); // refused: pages ask now and then instead
    again = setTimeout(() => { opened = ""; open(); }, TRY_AGAIN);
    tell("polling");
  };
  for (const topic of topics) made.addEventListener(topic, ({ data }) => { say({ kind: "event", topic, data }); tab.event(topic, data); });
}

function shut() {
  source?.close();
  coming?.close();
  source = coming = null;
}

function letGo() {
  if (holds) shut();
  holds = false;
  opened = "";
  for (const it of [soon, grace, again]) clearTimeout(it);
}

// Who holds it ----------------------------------------------------------------------------------------------------

function lock(signal) {
  const held = () => signal.aborted || new Promise((done) => { signal.onabort = done; hold(); });
  navigator.locks.request(name, { signal }, held).catch(() => signal.aborted || tab.state("polling"));
}

function lease(signal) {
  const look = () => {
    const [holder, at] = (localStorage.getItem(name) ?? "").split(" ");
    const mine = holder === me || !(Math.abs(Date.now() - at) < LEASE);
    if (mine) localStorage.setItem(name, `${me} ${Date.now()}`);
    if (mine && !holds) hold();
    else if (!mine && holds) { letGo(); want(); } // two took it at once, and the last one has it
  };
  const every = setInterval(look, LEASE / 3);
  addEventListener("storage", (event) => event.key === name && look(), { signal });
  signal.onabort = () => {
    clearInterval(every);
    if (localStorage.getItem(name)?.startsWith(me)) localStorage.removeItem(name);
  };
  look();
}

function onBeat() {
  if (holds) {
    for (const [from, it] of wants) if (Date.now() - it.at > SILENT) wants.delete(from);
    say({ ...told, asks: true });
    settle();
  } else if (Date.now() - heard > SILENT) take(NOTHING);
}

// What a tab does -------------------------------------------------------------------------------------------------

/** Get a share of the stream, or hold it for all. Where neither can be had the page polls. */
export function join() {
  if (joined) return;
  listen();
  joined = new AbortController();
  heard = Date.now();
  beat = setInterval(onBeat, BEAT);
  try {
    want();
    (navigator.locks ? lock : lease)(joined.signal);
  } catch {
    tab.state("polling"); // a browser that forbids both
  }
}

export function leave() {
  if (!joined) return;
  clearInterval(beat);
  letGo();
  say({ kind: "gone", from: me });
  told = NOTHING;
  seen = null;
  joined.abort();
  joined = null;
}

/** Whether the user of these tabs is "in" or "out", for those that have not noticed. */
export const tellSession = (is) => say({ kind: "session", is });

function listen() {
  try {
    channel ??= new BroadcastChannel(name);
    channel.onmessage = hear;
  } catch { /* each tab by itself, then */ }
}

/** `wants()` is {topics, charts}; `state(word, isNew)`, `event(topic, data)` and `session(word)` are told what comes. */
export function startTabs(it) {
  tab = it;
  listen();
  // A page with a lock or a channel could not be kept for going back.
  addEventListener("pagehide", () => { leave(); channel?.close(); channel = null; });
  addEventListener("pageshow", (event) => event.persisted && listen());
}
