"""Templates: text with slots, `--size={size}`, that arguments fill and nothing else does.

A slot is a name in braces; `{{` and `}}` are braces. A value becomes text by its type. It is never split, never
expanded, never looked at by a shell.
"""

from __future__ import annotations

import datetime as dt
import string
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, cast

from ...core.errors import PayloadError


class Template:
    """One text with its slots."""

    def __init__(self, text: str) -> None:
        if not isinstance(cast("object", text), str) or "\0" in text:
            raise ValueError(f"an argument must be text without NUL, not {text!r}")
        self.text = text
        self.parts: list[tuple[str, str | None]] = []
        try:
            for before, name, spec, conversion in string.Formatter().parse(text):
                if name is not None and (not name.isidentifier() or spec or conversion):
                    raise ValueError("a slot is a name in braces")
                self.parts.append((before, name))
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}; {{{{ and }}}} are braces") from None
        self.slots = tuple(name for _, name in self.parts if name is not None)
        # The whole text is one slot: a list may fill it, as several arguments.
        self.whole = self.slots[0] if len(self.parts) == 1 and not self.parts[0][0] and self.slots else None
        # Its first character may come from a job.
        self.leading = self.parts[0][1] if self.parts and not self.parts[0][0] else None

    def fill(self, values: Mapping[str, Any], form: Callable[[str, Any], str] | None = None) -> str:
        make = form or text_of
        return "".join(before + ("" if name is None else make(name, values[name])) for before, name in self.parts)


def text_of(name: str, value: Any) -> str:
    """A value as an argument of a program. PayloadError if it has no such form."""
    found: str
    match value:
        case bool():
            found = "true" if value else "false"
        case str():  # also an enum of text
            found = value.value if isinstance(value, Enum) else value
        case Enum():
            return text_of(name, value.value)
        case int() | float() | Decimal() | uuid.UUID() | PurePath():
            found = str(value)
        case dt.datetime() | dt.date() | dt.time():
            found = value.isoformat()
        case _:
            raise PayloadError(f"a {type(value).__name__} cannot be an argument of a program", name)
    if "\0" in found:
        raise PayloadError("NUL cannot be in an argument of a program", name)
    return found
