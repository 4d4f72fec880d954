"""A form of a task's arguments: which input each parameter has, and what becomes of what was typed."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest

from treadle import Registry
from treadle.core.redact import MASK
from treadle.web.pages.arguments import fields, read
from treadle.web.problem import Problem
from treadle.web.schema import schema_of

registry = Registry()


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@registry.task(name="shop.pack")
async def pack(
    order: int,
    note: str,
    weight: float = 1.0,
    gift: bool = False,
    size: Size = Size.SMALL,
    speed: Literal["slow", "fast"] = "slow",
    to: str | None = None,
    lines: list[int] | None = None,
) -> None: ...


SCHEMA = schema_of(pack)


def test_each_type_has_its_input() -> None:
    made = {each.argument: each for each in fields(SCHEMA, {"order": 7, "note": "hi", "gift": True, "lines": [1]})}
    assert {name: each.kind for name, each in made.items()} == {
        "order": "number",
        "note": "text",
        "weight": "number",
        "gift": "select",
        "size": "select",
        "speed": "select",
        "to": "text",
        "lines": "json",
    }
    assert (made["order"].value, made["note"].value, made["gift"].value) == ("7", "hi", "true")
    assert (made["order"].needed, made["weight"].needed, made["weight"].step) == (True, False, "any")
    assert set(made["speed"].options) == {"", "slow", "fast"}
    assert made["weight"].hint == "Empty: 1.0"


def test_what_was_typed_becomes_values() -> None:
    typed = {"order": "7", "note": "", "weight": "2.5", "gift": "true", "size": "l", "to": "x", "lines": "[1, 2]"}
    assert read(SCHEMA, [*typed], [*typed.values()]) == {
        "order": 7,
        "note": "",
        "weight": 2.5,
        "gift": True,
        "size": "l",
        "to": "x",
        "lines": [1, 2],
    }
    assert read(SCHEMA, ["order", "note", "weight", "to", "lines"], ["1", "a", "", "", ""]) == {"order": 1, "note": "a"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("order", "seven"),
        ("order", "1.5"),
        ("order", ""),
        ("speed", "none"),
        ("weight", "true"),
        ("gift", "yes"),
        ("lines", "[1"),
        ("lines", '[{"a": 1, "a": 2}]'),
        ("nothing", "1"),
        ("note", f"a {MASK}"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, text: str) -> None:
    with pytest.raises(Problem, match=name):
        read(SCHEMA, [name], [text])


def test_names_without_values() -> None:
    with pytest.raises(Problem, match="differ in number"):
        read(SCHEMA, ["order"], [])
