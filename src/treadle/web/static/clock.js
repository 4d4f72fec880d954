// The server's clock. Relative times are reckoned by it: the browser's may be minutes off, and would say "in 9m" of what
// was just now.
const SET = 1000; // a clock that has moved so much against the time that went by was set, or the machine has slept
const OLD = 600000;

let offset = 0; // of the server's clock to the browser's
let best = null; // the answer that told it

export const now = () => Date.now() + offset;

const base = () => Date.now() - performance.now();
/** Whether the browser's clock was set since the server last told its own. */
export const isSet = () => best !== null && Math.abs(base() - best.base) > SET;

/** The server told its time between two moments of `performance.now()`: the shorter the trip, the truer the offset. */
export function tellTime(time, sent, came, trip = came - sent) {
  if (!time || (best && trip > best.trip && !isSet() && came - best.came < OLD)) return;
  best = { trip, came, base: base() };
  offset = time - (best.base + (sent + came) / 2);
}

// The page itself tells a time, too; any answer after it is truer, since a page may have been kept somewhere.
const loaded = performance.getEntriesByType("navigation")[0];
tellTime(+document.documentElement.dataset.time, loaded.requestStart, loaded.responseStart, Infinity);
