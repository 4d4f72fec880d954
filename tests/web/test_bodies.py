"""Request bodies: deadlines, sizes, what is held at once, and what becomes of a body that nobody reads.

All without a socket, through the ASGI app alone, on its own and mounted in somebody's: what holds here holds under any
server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from treadle import App, Context, Wait
from treadle.core import answer as answering
from treadle.core import request_body
from treadle.core.share import Shares
from treadle.web import Access, Dashboard, body
from treadle.web.tokens import Tokens, make

from .wire import Sender
from .world import who

pytestmark = pytest.mark.anyio


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No body has any time at all, unless something of it has come."""
    monkeypatch.setattr(body, "time_for", lambda received: 0.01)
    monkeypatch.setattr(body, "TO_PASS_BY", 0.01)


def make_app() -> App:
    app = App("memory://", queues=["default"])
    app.tokens = []  # type: ignore[attr-defined]

    @app.task(name="hello")
    async def hello(name: str) -> str:
        return name

    @app.task(name="asks")
    async def asks(ctx: Context[Any]) -> Any:
        if ctx.has_answer:
            return len(await ctx.answer())
        token = await ctx.answer_token("1h")
        app.tokens.append(token)  # type: ignore[attr-defined]
        raise Wait(token)

    return app


@pytest.fixture(params=["alone", "mounted"])
async def served(request: pytest.FixtureRequest) -> AsyncGenerator[tuple[Any, str, Dashboard]]:
    """The app to ask, and the prefix."""
    app = make_app()
    web = Dashboard(app, access=who, pages=False)
    async with app:
        yield (web, "", web) if request.param == "alone" else (Starlette(routes=[Mount("/x", web)]), "/x", web)
        await web.close()


Served = tuple[Any, str, Dashboard]
JOBS = "/api/v1/jobs"
ENQUEUE = b'{"task": "hello", "args": {"name": "x"}}'


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("parts", [(), (ENQUEUE[:7],), (ENQUEUE[:7], ENQUEUE[7:9])])
async def test_a_body_that_does_not_come_to_an_end_is_refused(served: Served, parts: tuple[bytes, ...]) -> None:
    """1,100 of them shut everybody out."""
    web, root, _ = served
    asked = await Sender(web, JOBS, *parts, ends=False, root=root, x_role="admin").answer()
    assert asked.status == 408 and asked.kind == "too_slow" and asked.closes
    known = await Sender(web, JOBS, ENQUEUE, root=root, x_role="admin").answer()
    assert known.status == 201 and not known.closes, known.text


async def test_a_body_has_more_time_the_more_of_it_has_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    web, root, _ = served
    first = 0.05
    monkeypatch.setattr(body, "time_for", lambda received: 60.0 if received else first)
    asked = Sender(web, JOBS, ENQUEUE[:7], ends=False, root=root, x_role="admin", content_length=str(len(ENQUEUE)))
    await asyncio.sleep(first * 3)
    assert not asked.task.done()
    asked.more.put_nowait((ENQUEUE[7:], False))
    assert (await asked.answer()).status == 201, asked.text


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("headers", [{"content_length": "200000"}, {"content_length": "5", "expect": "100-continue"}])
@pytest.mark.parametrize(
    ("path", "role", "status"),
    [
        (JOBS, None, 401),
        (JOBS, "viewer", 403),
        ("/api/v1/none", "admin", 404),
        ("/api/v1/answers/never-a-token", None, 404),
        ("/api/v1/answers/never-a-token/beat", None, 404),
    ],
)
async def test_nothing_is_read_of_the_body_of_a_refused_request(
    served: Served, headers: dict[str, str], path: str, role: str | None, status: int
) -> None:
    web, root, _ = served
    identity = {} if role is None else {"x_role": role}
    asked = await Sender(web, path, ends=False, root=root, **headers, **identity).answer()
    assert (asked.status, asked.received, asked.closes) == (status, 0, True), asked.text


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("method", ["POST", "GET", "PROPFIND"])
async def test_an_unread_body_keeps_no_connection(served: Served, method: str) -> None:
    """A small one at hand passes by; one that does not come, or is too much, closes the connection."""
    web, root, _ = served
    options: dict[str, Any] = {"method": method, "root": root}
    here = await Sender(web, "/api/v1/queues", b"{}", **options).answer()
    assert (here.status, here.closes) == (401, False)
    slow = await Sender(web, "/api/v1/queues", b"{", ends=False, **options).answer()
    assert (slow.status, slow.closes) == (401, True)
    many = [b"x" * 1000] * 100
    large = await Sender(web, "/api/v1/queues", *many, transfer_encoding="chunked", **options).answer()
    assert (large.status, large.closes) == (401, True) and 64 <= large.received <= 67
    none = await Sender(web, "/api/v1/queues", content_length="0", **options).answer()
    assert (none.status, none.closes, none.received) == (401, False, 0)
    if method == "GET":  # also where the request is answered as it should be
        fine = await Sender(web, "/api/v1/queues", b"{", ends=False, x_role="viewer", **options).answer()
        assert (fine.status, fine.closes) == (200, True)
    for length in ("2", "200000"):  # there is no such header in HTTP/2
        h2 = await Sender(web, JOBS, b"{", ends=False, http_version="2", content_length=length, **options).answer()
        assert h2.status == 401 and "connection" not in h2.headers


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(served: Served, chunked: bool) -> None:
    web, root, _ = served
    parts = [b'"' + b"x" * 65_535] * 40
    encoding = {"transfer_encoding": "chunked"} if chunked else {}
    asked = await Sender(web, JOBS, *parts, root=root, x_role="admin", **encoding).answer()
    assert (asked.status, asked.kind, asked.closes) == (413, "too_large", True)
    assert asked.received == (33 if chunked else 0)


async def test_a_login_takes_4_KiB() -> None:
    kept, token = make("ann", "viewer")
    web = Dashboard(make_app(), access=Tokens([kept]), pages=False)
    form = "application/x-www-form-urlencoded"
    right = f"token={token}&next=/".encode()
    assert (await Sender(web, "/login", right, content_type=form).answer()).status == 303
    for encoding in ({}, {"transfer_encoding": "chunked"}):
        asked = await Sender(web, "/login", right + b"x" * 4096, content_type=form, **encoding).answer()
        assert (asked.status, asked.closes) == (413, True)


async def waiting_token(app: App) -> str:
    handle = await app.enqueue("asks")
    async with asyncio.timeout(20):
        while (await handle.status()).state != "waiting":
            await asyncio.sleep(0.01)
    return str(app.tokens[-1])  # type: ignore[attr-defined]


async def test_an_answer_is_as_large_as_a_result_may_be() -> None:
    app = make_app()
    web = Dashboard(app, access=lambda request: None, pages=False)
    async with app, app.worker():
        token = await waiting_token(app)
        path = f"/api/v1/answers/{token}"
        largest = b'{"result": "' + b"x" * (1024 * 1024 - 2) + b'"}'
        too_large = largest + b" " * (answering.LARGEST_BODY + 1 - len(largest))
        asked = await Sender(web, path, too_large).answer()
        assert (asked.status, asked.received, asked.closes) == (413, 0, True)
        beat = await Sender(web, f"{path}/beat", b'"' + b"x" * 4096).answer()
        assert (beat.status, beat.received) == (413, 0)
        asked = await Sender(web, path, largest).answer()
        assert asked.status == 200 and asked.text == '{"outcome":"won"}', asked.text


async def test_with_a_secret_an_answer_without_a_signature_is_not_read() -> None:
    import msgspec

    app = make_app()
    app.config = msgspec.structs.replace(app.config, answer_secret="s")
    web = Dashboard(app, access=lambda request: None, pages=False)
    async with app:
        asked = await Sender(web, "/api/v1/answers/x", ends=False, content_length="100000").answer()
        assert (asked.status, asked.received) == (401, 0)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_bodies_of_nobody_hold_a_bounded_number_of_bytes() -> None:
    """60 x 2 MB were held. One address has half of what there is, the next one half of the rest."""
    app = make_app()
    web = Dashboard(app, access=lambda request: None, pages=False)
    web._anonymous = shares = Shares(8000)
    async with app, app.worker():
        path = f"/api/v1/answers/{await waiting_token(app)}"
        begin = b'{"result": "' + b"x" * 987 + b'"'  # 1,000 bytes, and the end is still to come

        def send(address: str) -> Sender:
            return Sender(web, path, begin, ends=False, address=address, content_length="1001")

        held = [send("192.0.2.7") for _ in range(4)]
        await until(lambda: shares.taken == 4000)
        refused = await send("192.0.2.7").answer()
        assert (refused.status, refused.kind, refused.closes) == (429, "rate_limited", True)
        held += [send(f"2001:db8::{number}") for number in range(2)]  # another caller is not refused
        await until(lambda: shares.taken == 6000)
        assert (await send("2001:db8::7").answer()).status == 429
        held += [send("198.51.100.1"), send("198.51.100.2")]
        await until(lambda: shares.taken == 8000)
        full = await send("198.51.100.3").answer()
        assert (full.status, full.kind, full.closes) == (503, "unavailable", True)
        for each in held:
            each.more.put_nowait((b"}", False))
        # The last byte of each needs a place, too: some are told to try again, and all of it is given back.
        statuses = [(await each.answer()).status for each in held]
        assert set(statuses) <= {200, 429, 503} and shares.taken == 0, statuses
        asked = await Sender(web, path, begin + b"}").answer()
        assert asked.status == 200, asked.text


async def test_one_user_cannot_take_all_that_bodies_may_hold(served: Served) -> None:
    web, root, dashboard = served
    dashboard._known = shares = Shares(4000)

    def send(role: str) -> Sender:
        return Sender(web, JOBS, b"[" + b" " * 999, ends=False, root=root, x_role=role, content_length="1001")

    held = [send("admin") for _ in range(2)]
    await until(lambda: shares.taken == 2000)
    assert (await send("admin").answer()).status == 429
    other = Sender(web, "/api/v1/operations/preview", b"{" + b" " * 999, ends=False, root=root, x_role="viewer")
    await until(lambda: shares.taken == 3000)
    for each in (*held, other):
        each.more.put_nowait((b"", False))
        assert (await each.answer()).status == 400
    assert shares.taken == 0


async def test_a_body_whose_sender_goes_away_is_given_back(served: Served) -> None:
    web, root, dashboard = served
    asked = Sender(web, JOBS, b"[" * 1000, ends=False, root=root, x_role="admin")
    await until(lambda: dashboard._known.taken == 1000)
    asked.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked.task
    assert dashboard._known.taken == 0


def test_who_is_counted() -> None:
    from starlette.requests import Request

    from treadle.web.access import NOBODY

    def asking(address: str | None) -> Request:
        return Request({"type": "http", "client": None if address is None else (address, 1), "headers": []})

    app = App("memory://")
    ann = Access("ann", "viewer")
    known, is_open = Dashboard(app, access=who, pages=False), Dashboard(app, access="open", pages=False)
    assert known.caller(asking("192.0.2.7"), ann) == known.caller(asking("192.0.2.8"), ann) == "user ann"
    assert known.caller(asking("2001:db8::1"), NOBODY) == "address 2001:db8::/64"
    assert is_open.caller(asking("::ffff:192.0.2.7"), ann) == "address 192.0.2.7"
    assert is_open.caller(asking(None), ann) == "address "


def test_the_sizes_are_these() -> None:
    assert (request_body.LARGEST, request_body.LARGEST_ANONYMOUS) == (2 * 1024 * 1024, 4 * 1024)
    assert (body.HELD_ANONYMOUS, body.HELD_KNOWN) == (16 * 1024 * 1024, 64 * 1024 * 1024)
