// Charts by uPlot, from what the figure's data-chart holds. The plot itself is skipped by the morph; a figure that has
// changed gets its new numbers. Colours are those of the page, so that both themes can be read.
import { $, $$ } from "./page.js";
import { ago } from "./times.js";

const drawn = new WeakMap(); // figure → {plot, text, data}

const colour = (name) => {
  const probe = document.createElement("i");
  probe.className = name;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};
const fade = (color, alpha) => color.replace(/^rgb\((.*)\)$/, `rgba($1,${alpha})`);

export function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${+seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${+(seconds / 60).toFixed(1)} m`;
  return `${+(seconds / 3600).toFixed(1)} h`;
}
const number = (value) => (value == null ? "–" : value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${+value.toFixed(1)}`);

function hour(at, range, utc) {
  const zone = utc ? { timeZone: "UTC" } : {};
  const said = range > 2 * 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(range < 700 && { second: "2-digit" }) };
  return new Date(at * 1000).toLocaleString("en-GB", { ...said, ...zone });
}

/** One upon the other; what is not known stays so. */
function stack(rows) {
  const sums = rows[0].map(() => 0);
  return rows.map((row) => row.map((value, n) => (value === null ? null : (sums[n] += value))));
}

const isStacked = (figure) => figure.dataset.kind !== "lines";
// The tallest of a stack is painted first.
const columns = (figure, data) => [data.x, ...(isStacked(figure) ? stack(data.y).reverse() : data.y)];

/** The numbers have changed. A range that somebody has drawn stays. */
function show(figure, own) {
  const closer = zoomed(own.plot, own.plot.data[0]);
  own.plot.setData(columns(figure, own.data), !closer);
  if (closer) own.plot.redraw();
}

function draw(figure) {
  const text = figure.dataset.chart;
  const had = drawn.get(figure);
  const data = JSON.parse(text);
  const stacked = isStacked(figure);
  const few = data.y[0].filter((it) => it !== null).length < 3; // no line without two of them
  const same = had && had.few === few && data.step === had.data.step && data.names.join("\n") === had.data.names.join("\n");
  if (same && !had.old) {
    if (had.text === text) return;
    had.text = text;
    had.data = data;
    show(figure, had);
    return;
  }
  had?.plot.destroy();
  const place = $(".plot", figure);
  place.replaceChildren();
  const write = figure.dataset.unit === "seconds" ? span : number;
  const soft = colour("soft");
  const grid = fade(soft, 0.16);
  const own = { text, few, data: same ? had.data : data, old: false };
  const lines = data.names.map((name, n) => {
    const color = colour(`c-${data.tones[n]}`);
    return stacked
      ? { label: name, stroke: color, width: 1.25, fill: fade(color, figure.dataset.kind === "area" ? 0.35 : data.tones[n] === "succeeded" ? 0.22 : 0.7), points: { show: few }, ...(figure.dataset.kind === "area" ? {} : { paths: window.uPlot.paths.stepped({ align: 1 }) }), value: (_, __, ___, i) => (i === null ? "–" : write(own.data.y[n][i])) }
      : { label: name, stroke: color, width: 1.75, points: { show: few || undefined, size: 4 }, spanGaps: data.live !== "depth", value: (_, value) => write(value) };
  });
  const series = stacked ? [...lines].reverse() : lines;
  const utc = document.documentElement.dataset.zone === "utc";
  const options = {
    width: place.clientWidth, height: place.clientHeight, legend: { show: false }, padding: [8, 20, 0, 0],
    tzDate: utc ? (at) => window.uPlot.tzDate(new Date(at * 1000), "UTC") : undefined,
    ...(data.step < 60 && { padding: [null, 28, null, null] }), // room for the last label, which is longer
    cursor: { y: false, points: { size: 6 }, sync: { key: "treadle", setSeries: false } },
    scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, figure.dataset.unit === "seconds" ? 0.01 : 4) * 1.08] } },
    axes: [
      { stroke: soft, grid: { show: false }, ticks: { stroke: grid, size: 4 }, font: "11px system-ui", gap: 4, size: 28, space: 64, values: (plot, found) => found.map((at) => hour(at, plot.scales.x.max - plot.scales.x.min, utc)) },
      { stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 52, gap: 4, values: (_, found) => found.map(write), space: 32 },
    ],
    series: [{}, ...series],
    bands: stacked ? series.slice(1).map((_, n) => ({ series: [n + 1, n + 2] })) : [],
    hooks: { setCursor: [(plot) => tell(figure, plot, own, data.names, write)], setScale: [(plot, key) => key === "x" && together(plot)] },
  };
  if (!options.tzDate) delete options.tzDate;
  own.plot = new window.uPlot(options, columns(figure, own.data), place);
  drawn.set(figure, own);
}

const zoomed = (plot, x) => plot.scales.x.min > x[0] || plot.scales.x.max < x[x.length - 1] - 2 * (x[1] - x[0] || 0);

/** A range that is drawn on one chart is that of all; a double click shows everything again. */
let moving = false;
function together(plot) {
  if (moving) return;
  moving = true;
  const { min, max } = plot.scales.x;
  for (const figure of $$("figure[data-chart]")) {
    const other = drawn.get(figure)?.plot;
    if (other && other !== plot && (other.scales.x.min !== min || other.scales.x.max !== max)) other.setScale("x", { min, max });
  }
  moving = false;
}

/** What is under the cursor, in the legend. */
function tell(figure, plot, own, names, write) {
  const at = plot.cursor.idx;
  const items = $$(".legend li", figure);
  names.forEach((name, n) => {
    const said = items[n] && $("strong", items[n]);
    if (!said) return;
    said.dataset.whole ??= said.textContent;
    said.textContent = at == null ? said.dataset.whole : write(own.data.y[n][at]);
  });
  plot.root.title = at == null ? "" : `${new Date(plot.data[0][at] * 1000).toLocaleString()} · ${ago(plot.data[0][at] * 1000)}`;
}

// Points that the stream tells go into the charts: nothing is asked for again. What a line shows its chart says: parts
// of a point (`outcomes.failed`, `wait.p95`), or a queue and a state.
const part = (point, path) => {
  const [whole, name] = path.split(".");
  return whole === "outcomes" ? point.outcomes[name] ?? 0 : point[whole][name];
};
const sum = (found) => (found.some((it) => it !== null) ? found.reduce((all, it) => all + (it ?? 0), 0) : null);

/** What was told, as [moment, values of the lines]. Levels are of now: they belong to the step that runs. */
function told(data, news) {
  if (news.series?.step !== data.step) return [];
  const points = news.series.points.map((it) => [Date.parse(it.at) / 1000, it]);
  if (data.live === "series") return points.map(([at, it]) => [at, data.from.map((paths) => sum(paths.map((path) => part(it, path))))]);
  const own = data.from.map(([queue, state]) => (queue ? news.depths[queue]?.[state] ?? 0 : null));
  return [[points.at(-1)[0], own.map((it, n) => it ?? Math.max(0, news[data.from[n][1]] - sum(own)))]];
}

/** One moment into a chart: "begun", the oldest made room for it; "gap", the chart has to be asked for anew. */
function put(data, at, values) {
  const n = data.x.indexOf(at);
  const last = data.x[data.x.length - 1];
  // Of a level the most that was seen in a step counts; a minute is short enough for what is true now.
  const most = data.live === "depth" && data.step > 60;
  if (n >= 0) {
    data.y.forEach((line, i) => { line[n] = most ? Math.max(line[n] ?? 0, values[i]) : values[i]; });
    return "kept";
  }
  if (at < last) return "kept";
  if (at !== last + data.step) return "gap";
  const grows = data.step < 60; // a chart of seconds shows all that there is
  data.x.push(at);
  data.y.forEach((line, i) => line.push(values[i]));
  if (!grows) [data.x, ...data.y].forEach((line) => line.shift());
  return "begun";
}

/** What was told, into all charts of the page; the worst of what came of it. Nothing told is as good as a new step. */
export function tellCharts(news) {
  const came = [];
  for (const figure of $$("figure[data-chart]")) {
    const own = drawn.get(figure);
    if (!own || own.old) continue;
    // From seconds to minutes, or to seconds with the first run of all.
    if (news.series && news.series.step !== own.data.step && Math.min(news.series.step, own.data.step) < 60) came.push("gap");
    for (const [at, values] of told(own.data, news)) came.push(put(own.data, at, values));
    show(figure, own);
  }
  return ["gap", "begun"].find((it) => came.includes(it)) ?? came[0] ?? "begun";
}

function all() {
  if (!window.uPlot) return;
  for (const figure of $$("figure[data-chart]")) draw(figure);
}

function anew() {
  for (const figure of $$("figure[data-chart]")) { const had = drawn.get(figure); if (had) had.old = true; }
  all();
}

export function startCharts() {
  all();
  document.addEventListener("treadle:swapped", all);
  document.addEventListener("treadle:theme", anew);
  document.addEventListener("treadle:zone", anew);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
  let wait;
  addEventListener("resize", () => {
    clearTimeout(wait);
    wait = setTimeout(() => {
      for (const figure of $$("figure[data-chart]")) {
        const place = $(".plot", figure);
        drawn.get(figure)?.plot.setSize({ width: place.clientWidth, height: place.clientHeight });
      }
    }, 120);
  });
}
