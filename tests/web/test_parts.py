"""Small parts: values as JSON, redaction of texts, routes that are found, counts that are shared."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec import Struct

from treadle import App
from treadle.core.job import State
from treadle.web.counts import Counts
from treadle.web.plain import JSON, plain
from treadle.web.redact import Redaction
from treadle.web.routing import Routes, Table, decode_form, decode_query


class Pair(Struct):
    one: Any
    two: Any


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Pair(1, State.READY), {"one": 1, "two": "ready"}),
        (datetime(2026, 11, 15, 9, 0, 0, 123456, UTC), "2026-11-15T09:00:00.123Z"),
        (datetime(2026, 11, 15, 9, tzinfo=timezone(timedelta(hours=2))), "2026-11-15T07:00:00.000Z"),
        ({1: (2.00000001, math.inf, math.nan)}, {"1": [2.0, None, None]}),
        ([True, None, "x", frozenset({3})], [True, None, "x", [3]]),
    ],
)
def test_values_as_json(value: Any, shown: Any) -> None:
    assert plain(value) == shown


def test_half_of_a_surrogate_pair_is_mended() -> None:
    assert JSON({"a": ["\ud800"]}).body == b'{"a":["?"]}'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token=abc rest", "token=*** rest"),
        ("my_api_key: 'a b', x=1", "my_api_key: ***, x=1"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("connect postgresql://ann:pw@db:5432/x failed", "connect postgresql://ann:***@db:5432/x failed"),
        ('{"password": "x y"}', '{"password": ***}'),
        ("the token was wrong", "the token was wrong"),
        ("nothing here", "nothing here"),
    ],
)
def test_what_looks_like_a_secret_in_a_text(text: str, shown: str) -> None:
    assert Redaction().text(text) == shown


def test_a_long_text_is_looked_through_at_once() -> None:
    import time

    begun = time.process_time()
    Redaction().text("password" * 20_000 + "x-" * 100_000 + "a://" * 50_000)
    assert time.process_time() - begun < 4


def table() -> Table:
    routes = Routes()
    for method, path in (("GET", "/a/{x}"), ("GET", "/a/b"), ("POST", "/a/{x}"), ("GET", "/a/{x}/c"), ("GET", "/")):
        routes.page(method, path, action="see")(_nothing)  # type: ignore[arg-type]
    return Table(routes)


async def _nothing(call: Any) -> None: ...


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/a/b", "/a/b"),
        ("GET", "/a/z", "/a/{x}"),
        ("HEAD", "/a/z", "/a/{x}"),
        ("POST", "/a/z", "/a/{x}"),
        ("GET", "/a/z/c", "/a/{x}/c"),
        ("GET", "/", "/"),
        ("GET", "/a/", None),
        ("GET", "/a", None),
        ("GET", "/a//c", None),
        ("PUT", "/a/z", None),
    ],
)
def test_which_route_is_meant(method: str, path: str, found: str | None) -> None:
    route = table().find(method, path).route
    assert (None if route is None else route.path) == found


def test_what_a_path_allows() -> None:
    assert table().find("PUT", "/a/z").allow == ("GET", "POST", "HEAD")
    assert table().find("PUT", "/nothing").allow == ()


def test_a_route_is_declared_once() -> None:
    routes = Routes()
    routes.page("GET", "/a/{x}", action="see")(_nothing)
    routes.page("GET", "/a/{y}", action="see")(_nothing)
    with pytest.raises(ValueError, match="twice"):
        Table(routes)


class Form(Struct):
    tick: list[str] = []
    n: int = 3
    on: bool = False


def test_forms_and_queries() -> None:
    assert decode_form(Form, b"tick=a&tick=b&n=&on=true&other=1") == Form(["a", "b"], 3, True)
    assert decode_query(Form, [("n", "7")], strict=True) == Form(n=7)


@pytest.mark.anyio
async def test_counts_that_are_asked_at_once_are_asked_once() -> None:
    now, asked = [0.0], 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return asked

    counts = Counts(App("memory://"), clock=lambda: now[0])
    assert await asyncio.gather(*(counts.get(("x",), ask) for _ in range(5))) == [1] * 5
    now[0] = 1.9
    assert await counts.get(("x",), ask) == 1
    now[0] = 2.1
    assert await counts.get(("x",), ask) == 2
    for number in range(500):
        await counts.get((str(number),), ask)
    assert len(counts._kept) <= 200


@pytest.mark.parametrize(
    "what", ["treadle", "treadle.runtime.main", "treadle.cli, treadle.cli.enqueue, treadle.cli.worker"]
)
def test_who_needs_no_pages_imports_nothing_of_them(what: str) -> None:
    import subprocess
    import sys

    code = f"import {what}, sys; print([name for name in sys.modules if name in {{'starlette', 'uvicorn', 'jinja2'}}])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
