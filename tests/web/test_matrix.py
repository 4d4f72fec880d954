"""Every route, every method, every identity: found by walking the router, not from a list.

A route that somebody adds is tested here without another line: what it needs is what it declares.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sqlite3
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from treadle.web.access import ROLES, SAFE
from treadle.web.dashboard import Dashboard
from treadle.web.routing import Route
from treadle.web.tokens import Tokens, make

from .wire import Wire
from .world import CANARY, PAYLOAD, World, make_app, revive_before_the_next_write, world_on

pytestmark = pytest.mark.anyio

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
ID = "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"

# The whole list of what is open to everybody. Whoever adds to it must add here, and be asked why.
PUBLIC = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/login"),
    ("GET", "/login.js"),
    ("POST", "/login"),
    ("POST", "/logout"),  # whose session is over may press it, too
}
PUBLIC_IF_THERE = {
    ("POST", "/api/v1/answers/{token}"),
    ("POST", "/api/v1/answers/{token}/beat"),
    ("GET", "/static/{hash}/{name}"),
    ("GET", "/static/{hash}/lib/{name}"),
    ("GET", "/favicon.ico"),
}


def every_route(*, pages: bool = True) -> list[Route]:
    kept, _ = make("x", "admin")
    return list(Dashboard(make_app("memory://"), access=Tokens([kept]), pages=pages).table.routes)


def path_of(route: Route) -> str:
    return "/" + "/".join(ID if part.startswith("{") else part for part in route.parts)


def paths() -> Iterator[str]:
    yield from sorted({path_of(route) for route in every_route()})


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", filled=False, pages=True) as made:
        yield made


async def send(world: World, method: str, path: str, role: str | None, **headers: str) -> httpx.Response:
    identity = {} if role is None else {"X-Role": role}
    return await world.http.request(method, path, headers={**identity, **headers})


async def status_of(world: World, method: str, path: str, role: str | None, **headers: str) -> int:
    """The same, in a tenth of the time: every route by every method by everybody is thousands."""
    return await Wire(world.web).status(method, path, {**({} if role is None else {"X-Role": role}), **headers})


async def test_both_ways_to_ask_are_answered_alike(world: World) -> None:
    for path in ("/jobs", "/api/v1/queues", f"/api/v1/jobs/{ID}", "/none", "/healthz"):
        for role in ("admin", None):
            for headers in ({}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
                for method in ("GET", "POST"):
                    answer = await send(world, method, path, role, **headers)
                    assert await status_of(world, method, path, role, **headers) == answer.status_code


def test_the_public_routes_are_these() -> None:
    public = {(route.method, route.path) for route in every_route() if route.is_public}
    assert PUBLIC <= public <= PUBLIC | PUBLIC_IF_THERE


def test_no_route_is_declared_without_an_action() -> None:
    from treadle.web.routing import Routes

    with pytest.raises(TypeError):
        Routes().api("GET", "/x")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no action"):
        Routes().api("GET", "/x", action="anything")  # type: ignore[arg-type]


def test_every_mutation_needs_more_than_to_see() -> None:
    seeing = {(route.method, route.path) for route in every_route() if route.action in ("see", "payload")}
    unsafe = {each for each in seeing if each[0] not in SAFE}
    reading = {(route.method, route.path) for route in every_route() if route.only_reads}
    # These check the action that their body names.
    assert unsafe - reading <= {("POST", "/api/v1/operations"), ("POST", "/operations/new")}


async def test_anonymous_gets_nothing_but_what_is_public(world: World) -> None:
    table = world.web.table
    for path in paths():
        for method in METHODS:
            found = table.find(method, path).route
            status = await status_of(world, method, path, None, **{"Sec-Fetch-Site": "same-origin"})
            if found is not None and found.is_public:
                assert status < 500
            else:
                assert status == 401, (method, path, status)


# What may be sent where nobody is asked who he is: more than 4 KiB only where a contract says so.
LARGER_IN_PUBLIC = {"/api/v1/answers/{token}": 1024 * 1024 + 1024}


def test_public_routes_take_little() -> None:
    for route in every_route():
        if route.is_public and not route.is_safe:
            assert route.largest_body <= LARGER_IN_PUBLIC.get(route.path, 4 * 1024), route.path
        elif not route.is_public:
            assert route.largest_body == 2 * 1024 * 1024, route.path


async def test_every_route_refuses_a_body_that_is_too_large_without_reading_it(world: World) -> None:
    """Whoever may ask is told 413, whoever may not is told so, and neither has a byte of the body read."""

    async def unread() -> Any:
        pytest.fail("the body was read")

    async def status(route: Route, role: str | None, length: int) -> int:
        found: list[int] = []

        async def keep(message: Any) -> None:
            if message["type"] == "http.response.start":
                found.append(message["status"])
                assert (b"connection", b"close") in message["headers"], (role, route.path)

        headers = {"host": "localhost", "sec-fetch-site": "same-origin", "content-length": str(length)}
        headers |= {} if role is None else {"x-role": role}
        scope = {
            "type": "http", "method": route.method, "path": path_of(route), "query_string": b"", "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "root_path": "",
            "client": ("192.0.2.7", 1), "server": ("localhost", 80), "http_version": "1.1",
        }  # fmt: skip
        await world.web(scope, unread, keep)
        return found[0]

    unsafe = [route for route in world.web.table.routes if not route.is_safe]
    assert len(unsafe) > 60
    for route in unsafe:
        length = max(route.largest_body + 1, 64 * 1024 + 1)
        for role in (None, "viewer", "admin"):
            may = route.is_public or (role is not None and route.action in ROLES[role])
            refused = 401 if role is None else 403
            if route.before is not None:
                may, refused = False, 404  # there is no such token: that comes first
            assert await status(route, role, length) == (413 if may else refused), (role, route.path)


async def test_no_unsafe_method_passes_from_another_site(world: World) -> None:
    table = world.web.table
    hostile: tuple[dict[str, str], ...] = (
        {},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "http://localhost.evil.example"},
        {"Authorization": "Basic YWRtaW46YWRtaW4=", "Origin": "http://evil.example"},
    )
    some = itertools.cycle(hostile)  # for methods that a path does not have, each in its turn
    for path in paths():
        for method in METHODS:
            found = table.find(method, path).route
            if method in SAFE or (found is not None and found.is_credential):
                continue
            for headers in hostile if found is not None else (next(some),):
                status = await status_of(world, method, path, "admin", **headers)
                assert status == 403, (method, path, headers, status)


async def test_a_wrong_host_is_refused_everywhere(world: World) -> None:
    table = world.web.table
    hosts = ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8181", "")
    some = itertools.cycle(hosts)
    for path in paths():
        for method in METHODS:
            for host in hosts if table.find(method, path).route is not None else (next(some),):
                status = await status_of(world, method, path, "admin", Host=host, **{"Sec-Fetch-Site": "same-origin"})
                assert status == 421, (method, path, host)


async def test_each_role_may_what_it_may_and_nothing_else(world: World) -> None:
    """With no body, an act that is allowed is refused for other reasons, or does nothing to what is not there."""
    table = world.web.table
    for role, actions in ROLES.items():
        for path in paths():
            for method in METHODS:
                found = table.find(method, path)
                status = await status_of(world, method, path, role, **{"Sec-Fetch-Site": "same-origin"})
                told = (role, method, path, status)
                if found.route is None:
                    assert status == (405 if found.allow else 404), told
                elif found.route.action is not None and found.route.action not in actions:
                    assert status == 403, told
                else:
                    assert status not in (401, 403, 405, 421) and status < 500, told


def fingerprint(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        return hashlib.sha256("\n".join(db.iterdump()).encode("utf-8", "replace")).hexdigest()


async def test_a_viewer_never_changes_the_database(tmp_path: Path) -> None:
    """Beyond the lines in the audit that say what was refused."""
    async with world_on(tmp_path / "web.db", pages=True) as world:
        names = {
            "id": world.ids["failed"], "name": "nightly", "scope": "mail", "cause": "x", "token": "x",
        }  # fmt: skip
        before = _without_audit(tmp_path / "web.db")
        for route in every_route():
            path = "/" + "/".join(names.get(part[1:-1], "x") if part.startswith("{") else part for part in route.parts)
            for role in ("viewer", "viewer+payload", None):
                for method in METHODS:
                    await status_of(world, method, path, role, **{"Sec-Fetch-Site": "same-origin"})
        assert _without_audit(tmp_path / "web.db") == before


def _without_audit(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        lines = [line for line in db.iterdump() if '"treadle_audit"' not in line]
        return "\n".join(lines)


async def test_security_headers_are_on_every_answer(world: World) -> None:
    for path in paths():
        for role in (None, "admin"):
            answer = await send(world, "GET", path, role)
            headers = answer.headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'"), path
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["x-request-id"] and "access-control-allow-origin" not in headers
            assert path.startswith("/static/") or headers["cache-control"] == "no-store", path


def test_a_dashboard_without_access_does_not_start() -> None:
    from treadle import App
    from treadle.core.errors import ConfigError

    app = App("memory://")
    with pytest.raises(ConfigError, match="needs access="):
        app.dashboard()
    with pytest.raises(ConfigError, match='or "open"'):
        app.dashboard(access="closed")  # type: ignore[arg-type]
    assert app.dashboard(access="open", hosts=["jobs.example.com"])


async def test_no_page_tells_a_secret(tmp_path: Path) -> None:
    async with world_on(tmp_path / "web.db", pages=True) as world:
        for key in ("failed", "succeeded"):
            names = {"id": world.ids[key], "name": "nightly" if key == "failed" else "later", "scope": "mail"}
            for route in world.web.table.routes:
                if route.method != "GET" or route.is_stream:
                    continue
                path = "/" + "/".join(
                    names.get(part[1:-1], "x") if part.startswith("{") else part for part in route.parts
                )
                for role in ROLES:
                    answer = await send(world, "GET", path, role)
                    assert answer.status_code < 500, path
                    assert CANARY not in answer.text, (role, path)
                    assert role != "viewer" or PAYLOAD not in answer.text, path


async def test_an_act_of_a_page_is_audited_as_one_of_the_api_is(tmp_path: Path) -> None:
    async with world_on(tmp_path / "web.db", pages=True) as world:
        path = f"/jobs/{world.ids['failed']}/revive"
        answer = await send(world, "POST", path, "operator", **{"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 303, answer.text
        line = next(each for each in await world.audit() if each.act == "jobs.revive")
        assert line.by == "the-operator" and answer.headers["x-request-id"] in line.detail
        assert line.subject == world.ids["failed"]
        (told,) = [each for each in await world.app.history.timeline(world.ids["failed"]) if each.what == "revived"]
        assert told.by == "the-operator"


async def test_the_delete_of_a_page_leaves_alone_what_was_revived_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page offers to delete an ended job; the verb met the revived one, and cancelled it."""
    async with world_on(tmp_path / "web.db", pages=True) as world:
        id = world.ids["failed"]
        revive_before_the_next_write(world, id, monkeypatch)
        answer = await send(world, "POST", f"/jobs/{id}/delete", "admin", **{"Sec-Fetch-Site": "same-origin"})
        assert answer.status_code == 409, answer.text
        assert "is ready: cancel it first" in answer.text
        assert (await world.app.jobs.get(id)).state == "ready"
