"""Pages that ask before something is done: what it means, fields, a button, and the command that does the same.

With scripts they open in a dialog over the page they were asked from; without, they are pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field
from starlette.responses import Response

from ...core.command_line import Command
from ..routing import Call
from .frame import commanded, render


class Field(Struct, kw_only=True):
    name: str
    label: str
    kind: str = "text"  # text, number, check, select, json
    value: Any = ""
    hint: str = ""
    placeholder: str = ""
    needed: bool = False
    pattern: str = ""
    options: Sequence[str] = ()
    list: Sequence[str] = ()
    rows: int = 6
    wrong: str = ""
    step: str = ""
    argument: str = ""  # of a task: it is sent as a name and a value, whatever the name is


class Question(Struct, kw_only=True):
    title: str
    action: str  # where the form goes, below the mount point
    button: str
    words: str = ""
    danger: bool = False
    fields: Sequence[Field] = ()
    hidden: dict[str, Any] = field(default_factory=dict[str, Any])
    command: Command | None = None  # follows the fields
    back: str = "/"
    note: str = ""
    other: str = ""  # another way to ask the same: where, and in words
    other_words: str = ""
    preview: str = ""  # where a script asks what the fields mean, while somebody types
    preview_action: str = ""  # where a button asks the same without a script


async def ask(call: Call[Any, Any], question: Question, *, page: str, **more: Any) -> Response:
    command = None if question.command is None else commanded(question.command, question.fields)
    given: dict[str, Any] = {"command": command, "fires": None, "is_paused": False} | more
    return await render(call, "ask.html", title=question.title, page=page, question=question, **given)


async def confirm(
    call: Call[Any, Any], title: str, words: str, *, action: str, button: str, command: Command, back: str, page: str
) -> Response:
    """A question without fields: may it be done?"""
    asked = Question(title=title, words=words, action=action, button=button, command=command, back=back)
    return await ask(call, asked, page=page)
