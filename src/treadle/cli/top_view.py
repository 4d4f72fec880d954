"""How `treadle top` looks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from rich.console import Console, Group, RenderableType
from rich.panel import Panel as Box
from rich.table import Table
from rich.text import Text

from ..core.gate import Gate, closed
from ..core.records import FailureView
from ..core.text import visible
from ..core.view import JobView, PodView, QueueView, is_at_least
from .output import COLOURS
from .top_screen import HELP, PANELS, Panel, Screen, Snapshot

TITLES: Final[dict[Panel, str]] = {
    "queues": "Queues",
    "running": "Running",
    "failures": "Failures by cause",
    "pods": "Pods",
}
_AROUND: Final = 4  # lines of a table that are no rows: its title, its head, its frame


def drawn(screen: Screen, seen: Snapshot, height: int) -> RenderableType:
    """The whole screen. Rows are shared: the panel that is looked at has as many as there is room for."""
    if screen.helping:
        table = Table.grid(padding=(0, 3))
        for keys, does in HELP:
            table.add_row(Text(keys, style="bold"), does)
        return Box(table, title="Keys", border_style="cyan", padding=(1, 2))
    top: list[RenderableType] = [_head(seen), *map(_warning, seen.warnings[:3])]
    left = height - len(top) - 1 - len(PANELS) * _AROUND
    rooms = shares([len(seen.of(panel)) for panel in PANELS], PANELS.index(screen.panel), max(len(PANELS), left))
    panels = [_panel(panel, room, screen, seen) for panel, room in zip(PANELS, rooms, strict=True)]
    return Group(*top, *panels, _foot(screen, seen))


def shares(wanted: Sequence[int], chosen: int, room: int) -> list[int]:
    """How many rows each panel gets: the chosen one all that the others leave, and those at least one or two."""
    found = [min(want, 1) for want in wanted]
    order = [chosen, *(index for index in range(len(wanted)) if index != chosen)]
    for index in order[1:]:
        found[index] = min(wanted[index], 3)
    while sum(found) > room and max(found) > 1:
        found[found.index(max(found))] -= 1
    for index in order:
        found[index] = min(wanted[index], found[index] + max(0, room - sum(found)))
    return [max(1, each) for each in found]


def _head(seen: Snapshot) -> Text:
    ready, running, failed = (
        sum(getattr(queue, name) for queue in seen.queues) for name in ("ready", "running", "failed")
    )
    more = "+" if any(is_at_least(queue, "failed") for queue in seen.queues) else ""
    live = sum(pod.live for pod in seen.pods)
    head = Text.assemble(
        (" treadle ", "bold reverse"),
        (f" {seen.env} " if seen.env else " ", "bold"),
        (f"{seen.place}   ", "dim"),
        (f"{ready:,} ready   ", COLOURS["ready"]),
        (f"{running:,} running   ", COLOURS["running"]),
        (f"{failed:,}{more} failed   ", COLOURS["failed"] if failed else "dim"),
        (f"{seen.per_minute:,.0f}/min   ", COLOURS["succeeded"]),
        (f"{live} pod{'' if live == 1 else 's'}", "" if live else "bold red"),
    )
    head.no_wrap, head.overflow = True, "ellipsis"
    return head


def _warning(warning: Any) -> Text:
    text = Text.assemble(("! ", "bold yellow"), visible(f"{warning.text}; {warning.remedy}"))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _foot(screen: Screen, seen: Snapshot) -> Text:
    if screen.asking is not None:
        return Text.assemble(
            (f" {visible(screen.asking.question or '')} ", "bold reverse"), " y to do it, any other key not to"
        )
    if seen.trouble is not None:
        return Text(
            f" {visible(seen.trouble)}; what is shown is older", style="bold red", no_wrap=True, overflow="ellipsis"
        )
    keys = "Tab panel · j k move · p pause · C cancel · r revive · . hold · ? help · q quit"
    mark = "❚❚ held" if screen.held else f"● {seen.at:%H:%M:%S}Z"
    return Text.assemble(
        (f" {mark}  ", "yellow" if screen.held else "green"), (screen.said or keys, "" if screen.said else "dim")
    )


def _panel(panel: Panel, room: int, screen: Screen, seen: Snapshot) -> RenderableType:
    chosen, rows = screen.panel == panel, seen.of(panel)
    columns, cells = _COLUMNS[panel]
    first = max(0, screen.row - room + 1) if chosen else 0
    table = Table(expand=True, box=None, padding=(0, 1), header_style="dim")
    for name in columns.split():
        side: Literal["left", "right"] = "right" if name.startswith(">") else "left"
        table.add_column(name.lstrip(">").replace("-", ""), justify=side, no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(rows[first : first + room], first):
        style = "reverse" if chosen and number == screen.row else ""
        table.add_row(*cells(row, seen.at), style=style)
    if not rows:
        table.add_row(Text("none", style="dim"))
    title = TITLES[panel] + (f" ({len(rows)})" if len(rows) > room else "")
    return Box(table, title=title, title_align="left", border_style="cyan" if chosen else "bright_black", padding=0)


def _queue(queue: Any, now: datetime) -> tuple[Any, ...]:
    assert isinstance(queue, QueueView)
    note = ", ".join(_gate(queue, each, now) for each in closed(queue, now))
    most = queue.slots if queue.max_workers is None else min(queue.slots, queue.max_workers)
    return (
        _plain(queue.name),
        Text(_count(queue, "ready"), COLOURS["ready"]),
        Text(f"{queue.running}/{most}", COLOURS["running"]),
        _count(queue, "scheduled"),
        _count(queue, "waiting"),
        Text(_count(queue, "failed"), COLOURS["failed"] if queue.failed else "dim"),
        _time(queue.oldest_ready_seconds),
        Text(visible(note), "yellow"),
    )


def _gate(queue: QueueView, gate: Gate, now: datetime) -> str:
    if gate == "paused" and queue.paused_by:
        return f"paused by {queue.paused_by}"
    if gate == "cooling" and queue.cool_until is not None:
        return f"cooling for {_time((queue.cool_until - now).total_seconds())}"
    return gate


def _job(job: Any, now: datetime) -> tuple[Any, ...]:
    assert isinstance(job, JobView)
    ran = None if job.started_at is None else (now - job.started_at).total_seconds()
    note = "cancel wanted" if job.cancel_wanted else _progress(job)
    return (
        _plain(job.id),
        _plain(job.task),
        _plain(job.queue),
        f"{job.attempt}/{job.max_attempts or '–'}",
        _time(ran),
        _plain(job.pod or ""),
        _plain(note),
    )


def _progress(job: JobView) -> str:
    progress = job.progress
    if progress is None:
        return ""
    share = "" if not progress.total else f"{100 * progress.done / progress.total:.0f}% "
    return share + (progress.note or "")


def _failure(group: Any, now: datetime) -> tuple[Any, ...]:
    assert isinstance(group, FailureView)
    return (
        Text(f"{group.failed:,}", COLOURS["failed"] if group.failed else ""),
        Text(f"{group.retrying:,}", "yellow" if group.retrying else ""),
        _plain(group.task),
        _plain(group.type),
        _time((now - group.last_at).total_seconds()),
        _plain(group.message),
    )


def _pod(pod: Any, now: datetime) -> tuple[Any, ...]:
    assert isinstance(pod, PodView)
    slots = pod.slots or sum(pod.queues.values())
    return (
        _plain(pod.label) + (Text(" leader", "cyan") if pod.leader else Text()),
        Text(pod.state, COLOURS.get(pod.state, "yellow")),
        f"{sum(pod.runs.values()) or pod.running}/{slots}" if pod.queues else "",
        f"{pod.rss_bytes / 2**20:.0f} MB" if pod.rss_bytes else "",
        _time(pod.loop_lag) if pod.loop_lag else "",
        _time((now - pod.beat_at).total_seconds()),
        _plain(",".join(pod.queues) or "only services"),
    )


# A column is its name, with > before it if it is to the right.
_COLUMNS: Final[dict[Panel, tuple[str, Callable[[Any, datetime], tuple[Any, ...]]]]] = {
    "queues": ("queue >ready >running >scheduled >waiting >failed >oldest -", _queue),
    "running": ("job task queue >attempt >for pod -", _job),
    "failures": (">failed >retrying task error >ago message", _failure),
    "pods": ("pod state >busy >memory >lag >beat queues", _pod),
}


def _plain(text: str) -> Text:
    """As text, not as markup: it may come from anybody who enqueues."""
    return Text(visible(text))


def _count(queue: QueueView, state: str) -> str:
    number: int = getattr(queue, state)
    return f"{number // 1000}k+" if is_at_least(queue, state) else f"{number:,}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{max(0.0, seconds) * 1000:.0f}ms"


def once(screen: Screen, seen: Snapshot) -> None:
    """One frame, on stdout."""
    size = shutil.get_terminal_size((120, 60))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(size.columns, 120)
    console.print(drawn(screen, seen, max(size.lines, 60)))
