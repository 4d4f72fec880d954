"""The command line that does what a form does, for whatever is typed into the form.

A `Command` is a template: words that stay, and parts that take the value of a field, or are left out while that field
is empty or unchanged. `render` makes the text of it, quoted for a shell. The pages' script does the same
(`commandOf` in web/static/forms.js) while somebody types: both are tested with one table of cases, so whoever changes
one of them changes the other.

Values go first and options after them. A value that begins with a minus would be taken for an option: then options go
first, and `--` stands before the values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from .redact import MASK

MISSING: Final = "…"
# A terminal acts upon these when they are pasted, whatever the quotes around them say.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


class Part(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One value of a command, with the option before it if it has one."""

    flag: str = ""
    field: str = ""  # the field of the form that holds the value
    value: str = ""  # or the value itself
    prefix: str = ""  # NAME=, before the value
    text: bool = False  # the value is text: one that reads as JSON is written as a JSON string
    unless: str | None = None  # left out while the field holds this
    empty: tuple[str, ...] = ()  # what stands there while the field is empty
    needed: bool = False  # while the field is empty, the command is not complete
    several: bool = False  # values with commas between them, each with the option before it


class Command(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`some`: without any option it would change nothing."""

    head: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    some: bool = False


class Rendered(Struct, frozen=True):
    """`whole`: it can be run as it stands."""

    text: str
    whole: bool


def command(head: str, *parts: Part | str, some: bool = False) -> Command:
    """`head` is split at its spaces; a text among the parts is a value that stays as it is.

    >>> render(command("treadle queues pause", "mail", option("reason")), {"reason": "it's down"}).text
    'treadle queues pause mail --reason \\'it\\'"\\'"\\'s down\\''
    """
    made = tuple(Part(value=each) if isinstance(each, str) else each for each in parts)
    return Command(head=tuple(head.split()), parts=made, some=some)


def argument(field: str, *, unless: str | None = None, empty: str = "", needed: bool = False) -> Part:
    """A field whose value stands for itself."""
    return Part(field=field, unless=unless, empty=(empty,) if empty else (), needed=needed)


def option(
    field: str,
    flag: str = "",
    *,
    unless: str | None = None,
    empty: str = "",
    needed: bool = False,
    several: bool = False,
) -> Part:
    """A field behind an option, which is called like the field unless it is said."""
    name = flag or f"--{field.replace('_', '-')}"
    words = () if not empty else (empty,) if empty.startswith("--") else (name, empty)
    return Part(flag=name, field=field, unless=unless, empty=words, needed=needed, several=several)


def render(template: Command, values: Mapping[str, str]) -> Rendered:
    """The command for these values of the form's fields."""
    first: list[str] = []
    then: list[str] = []
    whole = True
    for part in template.parts:
        value = values.get(part.field, "") if part.field else part.value
        if part.field and value == part.unless:
            continue
        into = then if part.flag else first
        if not value and part.empty:
            into += part.empty
        elif value or part.needed:
            whole = whole and bool(value)
            into += _words(part, value or MISSING)
    if template.some and not then:
        then.append(MISSING)
        whole = False
    is_dashed = any(word.startswith("-") for word in first)
    words = [*template.head, *then, "--", *first] if is_dashed else [*template.head, *first, *then]
    whole = whole and not any(MASK in word or _CONTROL.search(word) for word in words)
    return Rendered(" ".join(map(quote, words)), whole)


def _words(part: Part, value: str) -> list[str]:
    values = [each.strip() for each in value.split(",") if each.strip()] if part.several else [value]
    written = [part.prefix + (_as_text(each) if part.text else each) for each in values]
    return [word for each in written for word in ((part.flag, each) if part.flag else (each,))]


def _as_text(value: str) -> str:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return value
    return msgspec.json.encode(value).decode()


def quote(word: str) -> str:
    """As `shlex.quote`; what is still missing stays as it is."""
    return word if word == MISSING else shlex.quote(word)
