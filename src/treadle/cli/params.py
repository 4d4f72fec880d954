"""What may be written behind an option: durations, instants, names. A wrong one is a usage error, with an example."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..core import duration, names
from ..core.instant import instant

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # takes no parameter before click 8.2


class Read(ParamType):
    """A parameter that a function of the core reads; its ValueError is what the user is told."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def instant_or_duration(text: str) -> datetime:
    """A moment, or how long from now."""
    try:
        return datetime.fromtimestamp(time.time() + duration.seconds(text), UTC)
    except ValueError:
        try:
            return instant(text)
        except ValueError:
            raise ValueError(f"{text!r} is neither a duration (2h) nor a moment (2026-11-15T09:00Z)") from None


def count_or_none(text: str) -> int | None:
    """How many, or `none` for no limit."""
    if text.strip().lower() == "none":
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is neither a number, 0 or more, nor none")
    return int(text)


DURATION: Final = Read("duration", duration.seconds)
INSTANT: Final = Read("instant", instant)
UNTIL: Final = Read("duration|instant", instant_or_duration)
QUEUE: Final = Read("queue", lambda text: names.check_name("queue", text))
REASON: Final = Read("text", names.check_reason)
