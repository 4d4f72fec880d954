"""Plots: one SVG for a page, a panel of bars for every workload in which somebody stands beside us.

Written by hand, without a library. It brings its own background, so that it can be read wherever it is shown, and
follows the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from . import peers
from .harness import Result, Workload
from .report import MORE_IS_BETTER, UNITS, Report, show

WIDTH = 760
NAMES = 190  # where the bars begin
BARS = 410  # how long the longest is
ROW, HEAD, GAP, EDGE = 20, 40, 18, 16

STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.page { fill: #ffffff }
.title { font-weight: 600; font-size: 13px }
.quiet { fill: #59636e }
.bar { fill: #afb8c1 }
.ours { fill: #0969da }
.range { stroke: #1f2328; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .page { fill: #0d1117 }
  .quiet { fill: #9198a1 }
  .bar { fill: #57606a }
  .ours { fill: #4493f8 }
  .range { stroke: #e6edf3 }
}"""


def svg(report: Report, title: str) -> str:
    panels = [(workload, found) for workload in report.workloads if len(found := _bars(report, workload)) > 1]
    height = EDGE * 2 + sum(HEAD + ROW * len(found) + GAP for _, found in panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}, {escape(report.date)}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
    ]
    top = EDGE
    for workload, found in panels:
        lines += _panel(report, workload, found, top)
        top += HEAD + ROW * len(found) + GAP
    return "\n".join([*lines, "</svg>"]) + "\n"


def _bars(report: Report, workload: Workload) -> list[tuple[str, Result]]:
    """The figure that is compared, the best first."""
    name = workload.figures[0]
    found = [(peer, result) for peer in report.peers if (result := report.results.figure(workload.name, peer, name))]
    return sorted(found, key=lambda each: each[1].median, reverse=name in MORE_IS_BETTER)


def _panel(report: Report, workload: Workload, found: list[tuple[str, Result]], top: int) -> Iterator[str]:
    name = workload.figures[0]
    better = "more is better" if name in MORE_IS_BETTER else "less is better"
    most = max(result.high for _, result in found) or 1.0
    yield f'<text class="title" x="{EDGE}" y="{top + 12}">{escape(workload.name)}</text>'
    yield f'<text class="quiet" x="{NAMES}" y="{top + 12}">{escape(UNITS[name][0])}, {better}</text>'
    for number, (peer, result) in enumerate(found):
        y = top + HEAD - 16 + ROW * number
        length, low, high = (value / most * BARS for value in (result.median, result.low, result.high))
        kind = "bar ours" if peer == report.ours else "bar"
        title = escape(peers.find(workload.run_by or peer).title)
        yield f'<text x="{NAMES - 8}" y="{y + 11}" text-anchor="end">{title}</text>'
        yield f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{max(1.0, length):.1f}" height="14" rx="2"/>'
        if result.rounds > 1:
            yield f'<path class="range" d="M{NAMES + low:.1f} {y + 7}H{NAMES + high:.1f}"/>'
        yield f'<text x="{NAMES + max(length, high) + 6:.1f}" y="{y + 11}">{escape(show(name, result.median))}</text>'
