// One tab holds the stream for all: a browser has six connections to a server, and a stream in each window would leave
// none for the seventh. Tabs say on a channel what they want of it, and hear there what comes and how it is.
import { url } from "./page.js";

const BEAT = 5000;
const SILENT = 3 * BEAT; // a tab without a word is gone, or hangs
const SETTLE = 50; // wants that come together become one stream
const GRACE = 2000; // to open a stream in the place of a tab that has gone
const TRY_AGAIN = 30000;
const LEASE = 6000;
const MOST_CHARTS = 8; // that the server takes; pages with further ones refresh now and then

// With the mount point and the hash of all scripts: other versions share nothing.
const name = `${import.meta.url} ${document.documentElement.dataset.who}`;
const me = `${Math.random()}`;
const NOTHING = { kind: "state", state: "reconnecting", topics: [] };

let tab; // see startTabs
let channel = null;
let joined = null;
let holds = false;
let told = NOTHING; // the last word of the tab that holds the stream
let heard = 0;
let seen = null; // the stream that is open, as far as this tab knows
let source = null;
let coming = null; // takes the place of the source once it is open
let opened = "";
let beat, soon, grace, again;
const wants = new Map(); // of the other tabs

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

/** A stream is live for tabs that get all they want of it. */
function take(said) {
  told = said;
  const had = seen;
  const isOpen = said.state === "live";
  seen = isOpen && tab.wants().topics.every((it) => said.topics.includes(it)) ? said.id : null;
  tab.state(isOpen && !seen ? "reconnecting" : said.state, seen && seen !== had);
}

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

function letGo() {
  shut();
  holds = false;
  heard = Date.now();
  opened = "";
  for (const it of [soon, grace, again]) clearTimeout(it);
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

/** The browser gives the lock to the next tab when one lets go, closes or crashes. */
function lock(signal) {
  const held = () => signal.aborted || new Promise((done) => { signal.onabort = done; hold(); });
  navigator.locks.request(name, { signal }, held).catch(() => signal.aborted || tab.state("polling"));
}

/** Plain HTTP to another machine has no Web Locks. A lease is taken at once if it was given back, else when it is over. */
function lease(signal) {
  const look = () => {
    const [holder, at] = (localStorage.getItem(name) ?? "").split(" ");
    const mine = holder === me || !(Math.abs(Date.now() - at) < LEASE);
    if (mine) localStorage.setItem(name, `${me} ${Date.now()}`);
    if (mine && !holds) hold();
    else if (!mine && holds) { letGo(); want(); } // two took it at once: the later has it
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

/** Share the stream, or hold it for all. Where a browser allows neither, the page polls. */
export function join() {
  if (joined) return;
  joined = new AbortController();
  heard = Date.now();
  beat = setInterval(onBeat, BEAT);
  try {
    listen();
    want();
    (navigator.locks ? lock : lease)(joined.signal);
  } catch {
    tab.state("polling");
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

/** Tell the other tabs that their user is "in" or "out". */
export const tellSession = (is) => say({ kind: "session", is });

function listen() {
  channel ??= new BroadcastChannel(name);
  channel.onmessage = hear;
}

/** `wants()` is {topics, charts}; `state(word, isNew)`, `event(topic, data)` and `session(word)` take what comes. */
export function startTabs(its) {
  tab = its;
  addEventListener("pagehide", () => { leave(); channel?.close(); channel = null; }); // or no browser could keep the page
}
