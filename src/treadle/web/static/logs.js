// The log of a job. It opens at its newest line and follows while it stands there: the box begins at its end by its
// style, so that needs no script. A reader who has scrolled up keeps his line, and is told what came meanwhile. The
// field above hides the lines that do not have its text; Enter asks the server, which looks at all that are kept.
import { $, $$ } from "./page.js";

const places = new Map(); // of each box: whether it is at its end, else which line is at its top, and the last one seen

const lines = (box) => $$(".line", box);
const top = (it) => it.getBoundingClientRect().top;
const isAtEnd = (box) => box.scrollTop > -4; // counted from the end

function note(box) {
  const end = isAtEnd(box);
  const all = lines(box);
  const line = end ? null : all.find((it) => it.getBoundingClientRect().bottom > top(box) && !it.hidden);
  const last = end ? all.at(-1)?.id : places.get(box.id)?.last;
  places.set(box.id, { end, last, line: line?.id, at: line && top(line) - top(box) });
  if (end) tell(box, 0);
}

function tell(box, many) {
  const button = $(`[data-newest="${box.id}"]`);
  button.hidden = !many;
  button.textContent = `${many} new ${many === 1 ? "line" : "lines"} below`;
}

function settle() {
  sift();
  for (const box of $$("[data-log]")) {
    const was = places.get(box.id);
    if (!was || was.end) { note(box); continue; }
    const line = was.line && document.getElementById(was.line);
    if (line) box.scrollTop += top(line) - top(box) - was.at;
    const all = lines(box);
    tell(box, all.length - 1 - all.findIndex((it) => it.id === was.last));
  }
}

function sift() {
  const field = $("[data-sift]");
  if (!field) return;
  const text = field.value.trim().toLowerCase();
  const all = $$("[data-log] .line");
  let many = 0;
  for (const it of all) {
    it.hidden = !it.textContent.toLowerCase().includes(text);
    if (it.hidden) continue;
    many += 1;
    if (text) it.closest("details").open = true;
  }
  const said = $("[data-sifted]");
  said.textContent = field.value === field.defaultValue ? said.dataset.sifted : text ? `${many} of ${all.length} lines shown here have it; Enter looks further` : "Enter shows all";
}

export function startLogs() {
  if (!$("#logs")) return;
  document.addEventListener("scroll", (event) => event.target.matches?.("[data-log]") && note(event.target), true);
  document.addEventListener("input", (event) => event.target.matches("[data-sift]") && sift());
  document.addEventListener("click", (event) => {
    const box = event.target.closest?.("[data-newest]");
    if (box) document.getElementById(box.dataset.newest).scrollTop = 0;
  });
  document.addEventListener("treadle:swapped", settle);
  settle();
}
