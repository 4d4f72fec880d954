"""The API under schemathesis, over a socket, as nobody and in every role.

What is sent is made from the API's own description, good and bad. Whatever it is: no answer is a 5xx, none holds a
secret, each is as described; nobody gets in without a login; a viewer changes nothing.

`make fuzz`; `make fuzz API_EXAMPLES=50` looks longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sqlite3
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from treadle.cli.web import listen
from treadle.web import Dashboard, body
from treadle.web import server as serving
from treadle.web.redact import Redaction
from treadle.web.routing import Route
from treadle.web.tables import api_routes

from ..web.wire import Sender
from ..web.world import CANARY, PAYLOAD, World, fill, make_app, who

EXAMPLES = int(os.environ.get("API_EXAMPLES") or 0)  # 0: a few, and always the same
NOBODY = "nobody"
READING = (NOBODY, "viewer", "viewer+payload")
CHANGING = ("operator", "admin")
CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]

load_all_checks()


class Served:
    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path
        self.app = make_app(url or f"sqlite:///{path}")
        self.web = Dashboard(self.app, access=who, pages=False)
        listening = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.ids: dict[str, str] = {}

        async def prepare() -> None:
            async with self.app:
                world = World(self.app, self.web)
                await fill(world)
                await world.http.aclose()
                self.ids = world.ids

        asyncio.run(prepare())
        self.server = serving.Beside(serving.server(self.web, "127.0.0.1", 0), [listening])
        self.server.start()

    def rows(self) -> str:
        """All that is kept, but the lines about refusals."""
        with sqlite3.connect(self.path) as db:
            return "\n".join(line for line in db.iterdump() if "treadle_audit" not in line)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    yield from serve(Served(tmp_path_factory.mktemp("fuzz") / "fuzz.db"))


@pytest.fixture
def on_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Served]:
    from tests import postgres_server

    monkeypatch.setenv("TREADLE_SCHEMA", postgres_server.a_schema())
    monkeypatch.setenv("TREADLE_AUTO_MIGRATE", "true")
    yield from serve(Served(tmp_path, postgres_server.shared_url()))


def serve(made: Served) -> Generator[Served]:
    yield made
    made.server.stop()
    made.server.join(10)
    made.app.close_sync()


PUBLIC = {route.path for route in api_routes() if route.is_public}
STREAMS = {route.path for route in api_routes() if route.is_stream}
# Their answers are Prometheus' own, or wait for a pod that never answers.
APART = STREAMS | {"/metrics"}


class Example(NamedTuple):
    case: Any
    number: int  # among those of its operation
    path: dict[str, Any]  # its parameters, as they were made


@functools.cache
def examples(url: str) -> list[Example]:
    """What is sent, made once from the description at that address: to think it up takes longer than to send it."""
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", headers={"X-Role": "admin"})
    operations = [found.ok() for found in schema.get_all_operations() if found.ok().path not in APART]
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    return [made for operation in operations for mode in modes for made in think_up(operation, mode)]


def think_up(operation: Any, mode: GenerationMode) -> list[Example]:
    made: list[Example] = []

    @settings(
        max_examples=EXAMPLES or 3,
        deadline=None,
        database=None,
        derandomize=not EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def keep(case: Any) -> None:
        case.headers = {
            name: value for name, value in (case.headers or {}).items() if name.lower() not in ("host", "authorization")
        }
        made.append(Example(case, len(made), dict(case.path_parameters or {})))

    with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with what takes nothing
        keep()
    return made


@pytest.mark.parametrize("roles", [READING, CHANGING], ids=" ".join)
def test_whatever_is_sent(served: Served, roles: Sequence[str], caplog: pytest.LogCaptureFixture) -> None:
    for role in roles:
        before = served.rows()
        campaign(served, role, caplog)
        assert role in CHANGING or served.rows() == before, role


def test_whatever_is_sent_to_postgresql(on_postgres: Served, caplog: pytest.LogCaptureFixture) -> None:
    campaign(on_postgres, "admin", caplog)


def campaign(served: Served, role: str, caplog: pytest.LogCaptureFixture) -> None:
    made = examples(served.url)
    with caplog.at_level(logging.INFO):
        for example in made:
            send(served, example, role)
    assert len(made) > 300
    assert CANARY not in caplog.text


def send(served: Served, example: Example, role: str) -> None:
    case, operation = example.case, example.case.operation
    aim(example, served)
    headers = {"Sec-Fetch-Site": "same-origin", **({} if role == NOBODY else {"X-Role": role})}
    answer = case.call(headers=headers, timeout=10)
    told = f"{role} {operation.method} {operation.path}: {answer.status_code} {answer.text[:300]}"
    assert CANARY not in answer.text and CANARY not in str(answer.headers), told
    if role == "viewer":
        assert PAYLOAD not in answer.text, told
    if role == NOBODY and operation.path not in PUBLIC:
        assert answer.status_code == 401, told
    if answer.status_code == 503 and "longer than a read may take" in answer.text:
        return  # a loaded machine is no counterexample
    case.validate_response(answer, checks=CHECKS)


def aim(example: Example, served: Served) -> None:
    """Half of the time, at something that is there."""
    case, number = example.case, example.number
    case.path_parameters = dict(example.path)
    if number % 2 or not case.path_parameters:
        return
    there = {"name": "later", "scope": "mail", "cause": "broken", "id": list(served.ids.values())[number % 6]}
    if "/schedules" in case.path:
        there["name"] = "nightly"
    case.path_parameters = {name: there.get(name, value) for name, value in case.path_parameters.items()}


def test_however_a_body_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any parts, with any word about its length, to an end or not, to any route, by anybody: it is answered, with no
    5xx; nothing of it is held afterwards; and a connection whose body is not at its end is given up."""
    monkeypatch.setattr(body, "time_for", lambda received: 0.001)
    monkeypatch.setattr(body, "TO_PASS_BY", 0.001)
    routes = [route for route in api_routes() if not route.is_stream]
    wholes = [b"", b"{}", b'{"result": 1}', b'{"task": "hello", "args": {"name": "x"}}', b"[", b"x" * 5000]
    lengths = st.sampled_from([None, "0", "1", "40", "5000", "70000", "2097153", "9" * 30, "-1", "x"])

    @settings(max_examples=EXAMPLES * 20 or 100, deadline=None, database=None, derandomize=not EXAMPLES)
    @given(
        route=st.sampled_from(routes),
        role=st.sampled_from([None, "viewer", "admin"]),
        parts=st.lists(st.sampled_from(wholes), max_size=4),
        ends=st.booleans(),
        length=lengths,
        headers=st.fixed_dictionaries(
            {},
            optional={
                "transfer_encoding": st.just("chunked"),
                "expect": st.just("100-continue"),
                "content_type": st.sampled_from([body.JSON, body.FORM, "text/plain", ""]),
            },
        ),
    )
    def check(
        route: Route, role: str | None, parts: list[bytes], ends: bool, length: str | None, headers: dict[str, str]
    ) -> None:
        given = headers | ({} if length is None else {"content_length": length})
        given |= {} if role is None else {"x_role": role}

        async def send() -> tuple[Sender, Dashboard]:
            app = make_app("memory://")
            web = Dashboard(app, access=who, pages=False)
            async with app:
                path = "/" + "/".join("x" if part.startswith("{") else part for part in route.parts)
                sender = Sender(web, path, *parts, ends=ends and bool(parts), method=route.method, **given)
                await sender.answer()
                await web.close()
                return sender, web

        sent, web = asyncio.run(send())
        told = (route.method, route.path, role, sent.status, sent.text[:200])
        assert 200 <= sent.status < 500 or sent.status in (501, 503), told
        assert role is not None or route.is_public or sent.status == 401, told
        assert web._known.taken == web._anonymous.taken == web.hub.count == 0, told
        is_done = sent.more.empty() and ends and bool(parts)
        assert sent.closes or is_done or not sent.declared, told

    check()


def test_redaction_holds_for_any_text() -> None:
    redaction = Redaction()

    @settings(max_examples=200, deadline=None, database=None)
    @given(
        key=st.sampled_from(["password", "api_key", "X-Auth-Token", "dsn", "Cookie", "clientSecret", "PRIVATE-KEY"]),
        inside=st.recursive(
            st.just(CANARY), lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part), max_leaves=5
        ),
        before=st.dictionaries(st.text(), st.integers(), max_size=3),
    )
    def check(key: str, inside: Any, before: dict[str, Any]) -> None:
        shown = redaction.value([{**before, key: inside}])
        assert CANARY not in repr(shown)
        assert CANARY not in redaction.text(f"{key}={CANARY} and {key}: {CANARY}")

    check()
