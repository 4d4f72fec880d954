// Charts by uPlot, from what the figure's data-chart holds. The plot itself is skipped by the morph; a figure that has
// changed gets its new numbers. Colours are those of the page, so that both themes can be read.
import { $, $$ } from "./page.js";
import { ago } from "./times.js";

const drawn = new WeakMap(); // figure → {plot, text}

const tone = (name) => {
  const probe = document.createElement("i");
  probe.className = `c-${name}`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};
const variable = (name) => {
  const probe = document.createElement("i");
  probe.className = name;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};
const fade = (color, alpha) => color.replace(/^rgba?\(([^)]*)\)$/, (_, parts) => `rgba(${parts.split(",").slice(0, 3).join(",")},${alpha})`);

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${+seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${+(seconds / 60).toFixed(1)} m`;
  return `${+(seconds / 3600).toFixed(1)} h`;
}
const number = (value) => (value === null || value === undefined ? "–" : value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : `${+value.toFixed(1)}`);

function hour(at, range, utc) {
  const zone = utc ? { timeZone: "UTC" } : {};
  const said = range > 2 * 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(at * 1000).toLocaleString("en-GB", { ...said, ...zone });
}

function stack(rows) {
  const sums = rows[0].map(() => 0);
  return rows.map((row) => row.map((value, n) => (sums[n] += value ?? 0)));
}

function draw(figure) {
  const text = figure.dataset.chart;
  const had = drawn.get(figure);
  const data = JSON.parse(text);
  const stacked = figure.dataset.kind === "stacked";
  const rows = stacked ? stack(data.y) : data.y;
  if (had && !had.old) {
    if (had.text === text) return;
    had.text = text;
    had.plain = data.y;
    had.plot.setData([data.x, ...(stacked ? [...rows].reverse() : rows)], !zoomed(had.plot, data.x));
    if (zoomed(had.plot, data.x)) had.plot.redraw();
    return;
  }
  had?.plot.destroy();
  const place = $(".plot", figure);
  place.replaceChildren();
  const write = figure.dataset.unit === "seconds" ? span : number;
  const soft = variable("soft");
  const grid = fade(soft, 0.16);
  const own = { text, plain: data.y, old: false };
  const lines = data.names.map((name, n) => {
    const color = tone(data.tones[n]);
    return stacked
      ? { label: name, stroke: color, width: 1.25, fill: fade(color, data.tones[n] === "succeeded" ? 0.22 : 0.7), points: { show: false }, paths: window.uPlot.paths.stepped({ align: 1 }), value: (_, __, ___, i) => (i === null ? "–" : write(own.plain[n][i])) }
      : { label: name, stroke: color, width: 1.75, points: { show: data.x.length < 3 || undefined, size: 4 }, spanGaps: true, value: (_, value) => write(value) };
  });
  // The tallest of a stack is painted first.
  const series = stacked ? [...lines].reverse() : lines;
  const values = stacked ? [...rows].reverse() : rows;
  const utc = document.documentElement.dataset.zone === "utc";
  const options = {
    width: place.clientWidth, height: place.clientHeight, legend: { show: false }, padding: [8, 20, 0, 0],
    tzDate: utc ? (at) => window.uPlot.tzDate(new Date(at * 1000), "UTC") : undefined,
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
  own.plot = new window.uPlot(options, [data.x, ...values], place);
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
    said.textContent = at === null || at === undefined ? said.dataset.whole : write(own.plain[n][at]);
  });
  plot.root.title = at === null || at === undefined ? "" : `${new Date(plot.data[0][at] * 1000).toLocaleString()} · ${ago(plot.data[0][at] * 1000)}`;
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
