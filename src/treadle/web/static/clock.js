// The server's clock, for relative times: with the browser's ten minutes off, what was just now would be "in 9m".
const SET = 1000; // a clock that moved so far against the time that went by was set, or the machine has slept
const OLD = 600000;

let offset = 0;
let best = null; // the answer that it comes from

export const now = () => Date.now() + offset;

const base = () => Date.now() - performance.now();
/** Whether the browser's clock was set since the server told its own. */
export const isSet = () => best !== null && Math.abs(base() - best.base) > SET;

/** The server told its time between two moments of `performance.now()`: the shorter the trip, the truer. */
export function tellTime(time, sent, came, trip = came - sent) {
  if (!time || (best && trip > best.trip && !isSet() && came - best.came < OLD)) return;
  best = { trip, came, base: base() };
  offset = time - (best.base + (sent + came) / 2);
}

// Any answer is truer than the page: it may have been kept somewhere.
const loaded = performance.getEntriesByType("navigation")[0];
tellTime(+document.documentElement.dataset.time, loaded.requestStart, loaded.responseStart, Infinity);
