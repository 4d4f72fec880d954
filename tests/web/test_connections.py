"""Connections of a real server: shares of addresses, bodies that do not come, answers that nobody reads.

One address floods (127.0.0.1), the admin comes from another (127.0.0.2). Numbers and times are small here; what they
are in earnest stands in `core.share`, `core.request_body` and `web.server`, with tests of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from treadle import App
from treadle.cli.web import listen
from treadle.core.outcome_log import MOST_LINES
from treadle.web import Dashboard, body
from treadle.web import server as serving
from treadle.web.proxied import Proxied
from treadle.web.request_shares import RequestShares
from treadle.web.tokens import Tokens, make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of its own on Linux only")

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
UNFINISHED = b"POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 100\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


class Served:
    def __init__(self, *, proxies: tuple[str, ...] = (), at: socket.socket | None = None) -> None:
        kept, self.token = make("admin", "admin")
        web = Dashboard(App("memory://"), access=Tokens([kept]), pages=False)
        listening = listen(HERE, 0) if at is None else at
        self.address = listening.getsockname()
        self.server = serving.server(web, HERE, 0, proxies=proxies)
        self.thread = serving.Beside(self.server, [listening])
        self.thread.start()
        self.open: list[socket.socket] = []

    @property
    def shares(self) -> Any:
        return self.server.config.connections  # type: ignore[attr-defined]

    def connect(self, source: str = HERE, *, buffer: int | None = None) -> socket.socket:
        if isinstance(self.address, str):
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(20)
            made.connect(self.address)
        else:
            made = socket.socket()
            made.settimeout(20)
            if buffer is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            made.bind((source, 0))
            made.connect(self.address)
        self.open.append(made)
        return made

    def ask(self, source: str = ELSEWHERE, path: str = "/api/v1/capabilities", **headers: str) -> int:
        """What the admin is answered."""
        with contextlib.closing(self.connect(source)) as made:
            given = {"Host": "localhost", "Authorization": f"Bearer {self.token}", "Connection": "close"}
            given |= {name.replace("_", "-"): value for name, value in headers.items()}
            lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
            made.sendall(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
            return status_of(until_closed(made))

    def stop(self) -> None:
        for each in self.open:
            each.close()
        self.thread.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


def until_closed(made: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while part := made.recv(65536):
            got += part
    return got


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few connections that a test can take them, and as much time as it needs."""
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(serving, "SLOWEST_HEAD", 3600.0)


@pytest.fixture
def served() -> Generator[Served]:
    made = Served()
    yield made
    made.stop()


@pytest.mark.usefixtures("few")
def test_one_address_cannot_take_all_connections(served: Served) -> None:
    flood = [served.connect() for _ in range(30)]
    wait_for(lambda: served.shares.held(HERE) == 10)
    refused = [until_closed(each) for each in flood[10:]]
    assert {status_of(each) for each in refused} == {429}
    assert b"Retry-After: 5" in refused[0] and b"from this address" in refused[0]
    assert served.ask() == 200  # from elsewhere
    assert served.ask(HERE) == 429
    for each in flood:
        each.close()
    wait_for(lambda: served.shares.taken == 0)
    assert served.ask(HERE) == 200


@pytest.mark.usefixtures("few")
def test_bodies_that_do_not_come_shut_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,100 unfinished posts of nobody did, for as long as they liked."""
    monkeypatch.setattr(body, "time_for", lambda received: 3600.0)
    flood = [served.connect() for _ in range(30)]
    for each in flood:
        with contextlib.suppress(OSError):
            each.sendall(UNFINISHED + FORM + b"\r\ntoken=")
    wait_for(lambda: served.shares.held(HERE) == 10)
    assert served.ask() == 200


def test_a_body_that_does_not_come_ends_with_its_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "time_for", lambda received: 0.2)
    monkeypatch.setattr(body, "TO_PASS_BY", 0.2)
    read, unread, asks = served.connect(), served.connect(), served.connect()
    read.sendall(UNFINISHED + FORM + b"\r\ntoken=")
    unread.sendall(UNFINISHED.replace(b"/login", b"/api/v1/jobs") + b"\r\n{")
    asks.sendall(UNFINISHED.replace(b"/login", b"/api/v1/jobs") + b"Expect: 100-continue\r\n\r\n")
    for made, status in ((read, 408), (unread, 401), (asks, 401)):
        answer = until_closed(made)  # at most 20 s, and not for as long as we like
        assert status_of(answer) == status and b"connection: close" in answer.lower(), answer
        assert b"100 Continue" not in answer
    wait_for(lambda: served.shares.taken == 0)


def test_a_connection_stays_when_a_small_body_was_refused(served: Served) -> None:
    made = served.connect()
    for _ in range(3):
        made.sendall(UNFINISHED.replace(b"/login", b"/api/v1/jobs") + b"\r\n")
        made.sendall(b"{" * 100)
        got = b""
        while b'"request_id"' not in got:
            got += made.recv(65536)
        assert status_of(got) == 401 and b"connection: close" not in got.lower()


@pytest.mark.parametrize("ends", [True, False])
def test_who_does_not_read_an_answer_is_let_go(served: Served, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """Also if the server has closed already, and only waits to be rid of the last bytes."""
    monkeypatch.setattr(serving, "SLOWEST_READER", 0.2 if not ends else 3600.0)
    monkeypatch.setattr(serving, "CLOSING", 0.2)
    monkeypatch.setattr(serving, "TICKS", 1)
    made = served.connect(buffer=2048)
    bearer = f"Authorization: Bearer {served.token}\r\n"
    request = f"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n{bearer}"
    made.sendall(f"{request}\r\n".encode() * 200)
    wait_for(lambda: served.shares.taken == 1)
    if ends:
        wait_for(lambda: any(each.flow.write_paused for each in served.server.server_state.connections))  # type: ignore[union-attr]
        for each in list(served.server.server_state.connections):
            each.loop.call_soon_threadsafe(each.transport.close)  # type: ignore[union-attr]
    wait_for(lambda: served.shares.taken == 0)


@pytest.mark.usefixtures("few")
def test_behind_a_proxy_requests_of_one_address_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are the proxy's: of the ten that one address may have there, a forwarded address has five."""
    monkeypatch.setattr(body, "time_for", lambda received: 3600.0)
    served = Served(proxies=(HERE,))
    try:
        requests: RequestShares = served.server.config.app._inner  # type: ignore[union-attr]
        for count in range(5):
            made = served.connect()
            made.sendall(UNFINISHED + FORM + b"X-Forwarded-For: 2001:db8::%d\r\n\r\ntoken=" % count)
        wait_for(lambda: requests.shares.held("2001:db8::/64") == 5)
        assert served.ask(HERE, X_Forwarded_For="2001:db8::99") == 429
        assert served.ask(HERE, X_Forwarded_For="2001:db8:1::1") == 200
        assert served.ask(HERE) == 200
    finally:
        served.stop()


def test_a_unix_socket_has_nothing_to_share_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 40)
    at = socket.socket(socket.AF_UNIX)
    at.bind(str(tmp_path / "s"))
    at.listen(128)
    at.setblocking(False)
    served = Served(at=at)
    try:
        for _ in range(39):
            served.connect()
        assert served.ask() == 200
        assert served.shares.taken == 0
    finally:
        served.stop()


def test_nonsense_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    nonsense = "Invalid HTTP request received."
    served = Served()
    with caplog.at_level(logging.WARNING):
        try:
            for _ in range(MOST_LINES + 10):
                with contextlib.closing(served.connect()) as made:
                    made.sendall(b"\x00\x01\r\n\r\n")
                    assert status_of(until_closed(made)) == 400
        finally:
            served.stop()
    lines = [each.getMessage() for each in caplog.records if nonsense in each.getMessage()]
    assert lines[:-1] == [nonsense] * MOST_LINES
    assert lines[-1] == f"10 more like this within a minute, the last one: {nonsense}"


@pytest.mark.anyio
async def test_requests_are_counted_until_they_are_answered() -> None:
    going = asyncio.Event()
    sent: dict[str, list[int]] = {}

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await going.wait()
            if scope["path"] == "/broken":
                raise ZeroDivisionError
        await send({"type": "http.response.start", "status": 200, "headers": []})

    shares = RequestShares(slow, 8)
    app = Proxied(shares, [HERE])

    async def ask(forwarded: str, path: str = "/") -> None:
        async def keep(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent.setdefault(forwarded, []).append(message["status"])

        headers = [(b"x-forwarded-for", forwarded.encode())]
        scope = {"type": "http", "client": (HERE, 1), "headers": headers, "path": path, "method": "GET"}
        await app(scope, None, keep)  # type: ignore[arg-type]

    first = [asyncio.ensure_future(ask("192.0.2.7", path)) for path in ("/", "/", "/", "/broken", "/", "/")]
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(ask(f"198.51.100.{number}")) for number in range(5)]
    async with asyncio.timeout(20):
        while shares.shares.taken < 8 or len(sent) < 2:
            await asyncio.sleep(0)
    going.set()
    done = await asyncio.gather(*first, *others, return_exceptions=True)
    assert sent["192.0.2.7"] == [429, 429, 200, 200, 200]
    assert sorted(status for each, found in sent.items() if each != "192.0.2.7" for status in found) == [
        200, 200, 200, 200, 503,
    ]  # fmt: skip
    assert [each for each in done if each is not None and not isinstance(each, ZeroDivisionError)] == []
    assert shares.shares.taken == 0
    await app({"type": "lifespan"}, None, lambda message: asyncio.sleep(0))  # type: ignore[arg-type]
