"""What a command prints: data on stdout, words on stderr.

With `--json` the data is one object, or one object a line for lists. Otherwise it is for eyes: a table with colours on
a terminal; elsewhere the same columns in plain text, never cut off, because somebody will `grep` it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

import click

from ..core.text import visible, visible_lines

COLOURS: Final = {
    "ready": "cyan",
    "scheduled": "blue",
    "waiting": "magenta",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "live": "green",
    "lapsed": "yellow",
    "lost": "red",
    "paused": "yellow",
}


_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_LEAST: Final = 8  # with less than that, a cut message would say nothing


class Output:
    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def data(self, value: Mapping[str, Any]) -> None:
        """One object of `--json`."""
        click.echo(as_line(value))

    def csv(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """A table for a spreadsheet."""
        from ..core.sheet import line

        for row in (columns, *rows):
            click.echo(line(row), nl=False)

    def line(self, text: str) -> None:
        """One line of data, for eyes."""
        click.echo(_shown(text), color=self.has_colour(sys.stdout))

    def say(self, text: str) -> None:
        if not self.quiet:
            click.echo(_shown(text), err=True, color=self.has_colour(sys.stderr))

    def warn(self, text: str) -> None:
        click.echo(f"treadle: {visible_lines(text)}", err=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        cells = [[" ".join(visible_lines(cell).split()) for cell in row] for row in rows]
        if not self.has_colour(sys.stdout):
            for line in _lines(columns, cells):
                click.echo(line)
            return
        # For eyes, a column that says nothing is left out, and a long last one is cut at the margin.
        kept = [index for index, column in enumerate(zip(*cells, strict=True)) if any(column)]
        shown = [[row[index] for index in kept] for row in cells]
        head, *lines = _lines([columns[index] for index in kept], shown)
        self.line(click.style(head, bold=True))
        width = shutil.get_terminal_size().columns
        for line, row in zip(lines, shown, strict=True):
            left = width - len(line) + len(row[-1])  # what the last column may have
            cut = line if len(line) <= width or left < _LEAST else line[: width - 1] + "…"
            state = next((cell for cell in row if cell in COLOURS), None)
            self.line(cut.replace(state, self.paint(state), 1) if state else cut)

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """One thing with its fields, one on each line."""
        pairs = list(pairs)
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            first, *more = visible_lines(value).splitlines() or [""]
            self.line(f"{self.paint(name.ljust(width), 'bright_black')}  {self.paint(first)}".rstrip())
            for each in more:
                self.line(" " * (width + 2) + each)

    def paint(self, text: str, colour: str | None = None) -> str:
        """The text in a colour, by default that of the state it names. Without colours `line` drops it again."""
        colour = colour or COLOURS.get(text)
        return click.style(text, fg=colour) if colour else text

    def has_colour(self, stream: TextIO) -> bool:
        return not (self.quiet or self.as_json or os.environ.get("NO_COLOR")) and stream.isatty()

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def as_line(value: Any) -> str:
    """A value as JSON in one line. What does not show itself is escaped: it stays the same value."""
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def _shown(text: str) -> str:
    """The text without what would move the cursor or turn its direction: parts of it may come from anybody who
    enqueues. Colours stay, which `paint` has put there."""
    return "".join(part if number % 2 else visible_lines(part) for number, part in enumerate(_COLOUR.split(text)))


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table in aligned lines, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    numbers = [bool(rows) and all(cell.rstrip("+").isdigit() for cell in column) for column in zip(*rows, strict=True)]
    aligned = [str.rjust if number else str.ljust for number in numbers or [False] * len(columns)]
    return [
        "  ".join(align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)).rstrip()
        for row in [list(columns), *rows]
    ]
