"""How `treadle demo` looks: bars that live under the story on a terminal, the story alone elsewhere, and the table."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..core.view import QueueView
from .output import COLOURS, Output

if TYPE_CHECKING:
    from rich.text import Text

    from .demo_scene import Ending

# What the first word of a line announces, in the colour of the state that it is about.
WORDS: Final = {
    "retry": "yellow",
    "throttle": "blue",
    "schedule": "blue",
    "snooze": "blue",
    "cancel": "bright_black",
    "fail": "red",
    "kill -9": "red",
    "rescue": "green",
    "go on": "green",
    "done": "green",
}
_WORD_WIDTH: Final = max(map(len, WORDS))
_NAME_WIDTH: Final = 9
_NOTE_WIDTH: Final = 22
_WIDEST_BAR: Final = 60
# Succeeded, failed, cancelled, under way; what is left is to be done.
_PARTS: Final = ("succeeded", "failed", "cancelled", "running")
_BLOCKS: Final = "███▓░"
_ASCII_BLOCKS: Final = "#x-+."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is to see at one moment. `workers` are (name, what it does)."""

    seconds: float
    now: float
    queues: Sequence[QueueView]
    workers: Sequence[tuple[str, str]]


class View(Protocol):
    def __enter__(self) -> View: ...
    def __exit__(self, *exc: object) -> None: ...
    def show(self, snapshot: Snapshot) -> None:
        """Draw what is there now."""
        ...

    def tell(self, seconds: float, word: str, text: str) -> None:
        """One line of the story. It stays."""
        ...


def view_for(out: Output) -> View:
    lives = out.shows_progress and not out.as_json and os.environ.get("TERM", "") not in ("", "dumb")
    return LiveView() if lives else PlainView(out)


def moment(seconds: float, word: str) -> str:
    """What a line of the story starts with."""
    return f"{seconds:5.1f} s  {word:<{_WORD_WIDTH}}  "


class PlainView:
    """Lines, one for each thing that happened."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        pass

    def tell(self, seconds: float, word: str, text: str) -> None:
        self._out.say(moment(seconds, word) + text)


class LiveView:
    """The story scrolls by; below it one bar for each queue, redrawn in place, and gone at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        from rich.text import Text

        width = self._console.width
        blocks = _ASCII_BLOCKS if self._console.options.ascii_only else _BLOCKS
        lines = [Text(), *(_row(queue, snapshot.now, width, blocks) for queue in snapshot.queues)]
        lines.append(_workers(snapshot))
        self._live.update(Text("\n", no_wrap=True, overflow="crop").join(lines), refresh=True)

    def tell(self, seconds: float, word: str, text: str) -> None:
        from rich.text import Text

        start = moment(seconds, word)
        line = Text(start)
        line.stylize("bright_black", 0, 7)
        line.stylize(f"bold {WORDS.get(word, '')}".strip(), 7)
        # On a narrow terminal the text goes on below itself.
        parts = textwrap.wrap(text, max(self._console.width - len(start), 20))
        self._console.print(line + Text(f"\n{' ' * len(start)}".join(parts)), soft_wrap=True)


def _row(queue: QueueView, now: float, width: int, blocks: str) -> Text:
    from rich.text import Text

    total = sum(counts(queue))
    ended = queue.succeeded + queue.failed + queue.cancelled
    room = width - _NAME_WIDTH - _NOTE_WIDTH - 15
    row = Text(f"  {queue.name:<{_NAME_WIDTH}} ", style="bold")
    row.append_text(_bar(queue, total, min(max(room, 5), _WIDEST_BAR), blocks))
    row.append(f" {ended:>4}/{total:<4} ", style="not bold")
    word, style = note(queue, now)
    row.append(word, style=f"not bold {style}".strip())
    return row


def _bar(queue: QueueView, total: int, width: int, blocks: str) -> Text:
    from rich.text import Text

    bar, drawn, so_far = Text(), 0, 0
    for part, block in zip(_PARTS, blocks, strict=False):
        so_far += getattr(queue, part)
        until = width * so_far // max(total, 1)
        bar.append(block * (until - drawn), style=f"not bold {COLOURS[part]}")
        drawn = until
    return bar.append(blocks[-1] * (width - drawn), style="not bold bright_black")


def counts(queue: QueueView) -> tuple[int, ...]:
    """How many jobs of it are in each state."""
    return (
        queue.ready,
        queue.scheduled,
        queue.waiting,
        queue.running,
        queue.succeeded,
        queue.failed,
        queue.cancelled,
    )


def note(queue: QueueView, now: float) -> tuple[str, str]:
    """What there is to say of a queue, and how it is coloured."""
    left = queue.cool_until.timestamp() - now if queue.cool_until is not None else 0.0
    if left > 0 and queue.ready + queue.scheduled:
        return f"cooling {math.ceil(left)} s", "blue"
    if not queue.ready + queue.scheduled + queue.waiting + queue.running:
        return ("done", "green") if queue.succeeded else ("", "")
    under_way = [f"{number} {state}" for state in ("running", "scheduled") if (number := int(getattr(queue, state)))]
    return ", ".join(under_way), ""


def _workers(snapshot: Snapshot) -> Text:
    from rich.text import Text

    line = Text(f"  {'workers':<{_NAME_WIDTH}} ", style="bold")
    for number, (name, does) in enumerate(snapshot.workers):
        line.append(", " if number else "", style="not bold bright_black")
        line.append(f"{name} {does}", style="not bold red" if does == "killed" else "not bold")
    return line.append(f"  {snapshot.seconds:.0f} s", style="not bold bright_black")


# ---------------------------------------------------------------------------------------------------------------------
# The end

_COLUMNS: Final = ("enqueued", "succeeded", "failed", "cancelled", "retried", "rescued")


def print_table(out: Output, ending: Ending) -> None:
    """What became of the jobs, by queue and in all. The same with and without colours: figures stand under figures."""
    rows: list[tuple[str, dict[str, int]]] = [(each["name"], each) for each in ending.queues]
    rows.append(("all", ending.totals))
    out.line("  ".join([f"{'queue':<{_NAME_WIDTH}}", *_COLUMNS]))
    for name, row in rows:
        cells = [_cell(out, column, row[column]) for column in _COLUMNS]
        out.line("  ".join([f"{name:<{_NAME_WIDTH}}", *cells]))


def _cell(out: Output, column: str, number: int) -> str:
    text = f"{number:>{len(column)}}"
    colours: dict[str, Any] = {"failed": COLOURS["failed"], "succeeded": COLOURS["succeeded"], "rescued": "green"}
    return out.paint(text, "bright_black" if number == 0 else colours.get(column))
