"""What a command prints: data on stdout, words on stderr.

With `--json` the data is one object, or one object a line for lists. Otherwise it is for eyes: a table with colours on
a terminal; elsewhere the same columns in plain text, never cut off, because somebody will `grep` it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

import click

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


class Output:
    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def data(self, value: Mapping[str, Any]) -> None:
        """One object of `--json`."""
        click.echo(json.dumps(value, ensure_ascii=False, default=str))

    def line(self, text: str) -> None:
        """One line of data, for eyes."""
        click.echo(text, color=self.has_colour(sys.stdout))

    def say(self, text: str) -> None:
        if not self.quiet:
            click.echo(text, err=True, color=self.has_colour(sys.stderr))

    def warn(self, text: str) -> None:
        click.echo(f"treadle: {text}", err=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        rows = list(rows)
        if self.has_colour(sys.stdout):
            _rich_table(columns, rows)
        else:
            _plain_table(columns, rows)

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """One thing with its fields, one on each line."""
        pairs = list(pairs)
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            first, *more = value.splitlines() or [""]
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


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for row in rows:
        # Text, not str: a "[red]" in somebody's error message is not ours to interpret.
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    Console().print(table)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    flat = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *flat, strict=True)]
    for row in [list(columns), *flat]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
