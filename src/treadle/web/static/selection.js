// Ticking rows: all on the page, a range, and how many.
import { $, $$ } from "./page.js";

let last = null;
const boxes = () => $$("input[name=id]", $("#view"));

export function count() {
  const ticked = boxes().filter((it) => it.checked).length;
  const said = $("[data-count]");
  if (said) said.textContent = `${ticked} ticked`;
  const all = $("[data-all]");
  if (all) {
    all.checked = ticked > 0 && ticked === boxes().length;
    all.indeterminate = ticked > 0 && ticked < boxes().length;
  }
  if (!ticked) {
    last = null;
    for (const it of $$("[data-fresh]")) it.hidden = true;
    const every = $("input[name=all]");
    if (every) every.checked = false;
    document.dispatchEvent(new CustomEvent("treadle:unticked"));
  }
}

export function tick(box, range) {
  const all = boxes();
  if (range && last && all.includes(last)) {
    const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
    for (const it of all.slice(from, to + 1)) it.checked = true;
  }
  last = box;
  count();
}

export function untick() {
  for (const it of boxes()) it.checked = false;
  count();
}

export function startSelection() {
  document.addEventListener("click", (event) => {
    if (event.target.matches?.("input[name=id]")) tick(event.target, event.shiftKey);
    if (event.target.matches?.("[data-all]")) {
      for (const it of boxes()) it.checked = event.target.checked;
      count();
    }
  });
  document.addEventListener("reset", () => setTimeout(count));
  document.addEventListener("treadle:swapped", count);
  if (boxes().length) count();
}
