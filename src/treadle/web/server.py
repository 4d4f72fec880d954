"""The server: uvicorn, with patience that ends, streams that end at a stop, and no word about itself.

What is scarce here are connections: 1,000, or fewer where the process may not have so many files open. One address (a
/64 of IPv6) may take as many as are left free, so half of them if nobody else comes: see `core.share`. Loopback is an
address like any other, and a reverse proxy is, too: of 500 connections it can make use of, and if somebody who can
reach the port directly takes what he can, the proxy still gets as many. Behind a trusted proxy the requests of each
address that it forwards are counted as well (`request_shares`), out of those 500. On a unix socket there is one kind
of caller only, and nothing to share out.

A connection ends that sends its headers too slowly, that does not read its answer, or that was closed and does not take
its last bytes. Bodies are not waited for here: `web.body` reads them by a deadline, or has the connection closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..core.address import group_of
from ..core.outcome_log import Line
from ..core.share import Shares, most_connections
from ..runtime.line_throttle import LineThrottle
from .proxied import Proxied
from .request_shares import RequestShares

if TYPE_CHECKING:
    from .dashboard import Dashboard

log = logging.getLogger("treadle.web")

SLOWEST_HEAD: Final = 10.0  # from the first byte of a request, or from its connection, to the end of its headers
LARGEST_HEAD: Final = 16 * 1024
MOST_CONNECTIONS: Final = 1000
SLOWEST_READER: Final = 30.0  # until the rest of an answer is taken
CLOSING: Final = 10.0  # and the last bytes of a connection that was closed
IDLE: Final = 5
GRACE: Final = 5
TURN: Final = 0.001
TICKS: Final = 10  # of uvicorn, a tenth of a second each


class _Few(logging.Filter):
    """uvicorn's lines about connections, of which a stranger can cause any number: ten of a kind a minute."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._throttle = LineThrottle(logger)
        self.close = self._throttle.close

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "left_out"):  # how many there were
            return True
        return self._throttle.admits(Line(record.levelno, record.getMessage(), f"{record.msg}"))


connection_log: Final = logging.getLogger("treadle.web.connections")
_few: Final = _Few(connection_log)
connection_log.addFilter(_few)


class _Config(uvicorn.Config):
    connections: Shares


class _Protocol(H11Protocol):
    """A client that says nothing, or a letter a minute, is let go; so is one that takes nothing of its answer. An
    address that has its share of connections gets no further one."""

    _patience: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _caller: str | None = None  # as it is counted
    closing_since: float | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = connection_log

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.client is not None:  # it is not on a unix socket
            caller, shares = group_of(self.client[0]), cast("_Config", self.config).connections
            verdict = shares.take(caller)
            if verdict != "granted":
                self._refuse(caller, verdict == "full")
                return
            self._caller = caller
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._read_again()
        if self._caller is not None:
            cast("_Config", self.config).connections.give_back(self._caller)
            self._caller = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(SLOWEST_READER, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def _read_again(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def look(self, now: float) -> None:
        """Now and then. `close` of a transport waits until its last bytes are taken, for ever if need be."""
        if self.transport.is_closing():
            if self.closing_since is None:
                self.closing_since = now
            elif now - self.closing_since >= CLOSING:
                self.transport.abort()

    def _refuse(self, caller: str, is_full: bool) -> None:
        why = "all are taken" if is_full else "this address has its share"
        self.logger.warning("a connection from %s was refused: %s", caller, why)
        self.transport.write(_FULL if is_full else _TOO_MANY)
        self.transport.close()

    def _wait(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(SLOWEST_HEAD, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self.transport.close()


def _refusal(status: str, text: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\n"
    return f"{head}Retry-After: 5\r\nConnection: close\r\n\r\n{text}".encode()


_TOO_MANY: Final = _refusal("429 Too Many Requests", "too many connections from this address\n")
_FULL: Final = _refusal("503 Service Unavailable", "too many connections\n")


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, web: Dashboard) -> None:
        super().__init__(config)
        self._web = web

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: it raises the signal again in the end, and a graceful stop would look like a kill.
        self.force_exit = self.should_exit
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            now = asyncio.get_running_loop().time()
            for each in list(self.server_state.connections):
                cast("_Protocol", each).look(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        await self._web.close()  # or streams would keep it
        await super().shutdown(sockets)
        _few.close()


def server(
    web: Dashboard,
    host: str,
    port: int,
    *,
    proxies: Sequence[str] = (),
    cert: str | None = None,
    key: str | None = None,
) -> Server:
    """`proxies`: who is believed about scheme and address, see `web.proxied`; nobody, if there are none."""
    most = most_connections(MOST_CONNECTIONS, _files())
    config = _Config(
        # As many requests as one proxy has connections for, if others take what they can.
        Proxied(RequestShares(web, most // 2), proxies) if proxies else web,
        host=host,
        port=port,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=most + 1,  # uvicorn counts the new one, too
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    config.connections = Shares(most)
    return Server(config, web)


def _files() -> int | None:
    """How many files the process may have open; None where there is no bound, or none that can be asked for."""
    try:
        import resource
    except ImportError:  # pragma: no cover - not on Windows
        return None
    found = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if found == resource.RLIM_INFINITY else found


def yield_soon() -> None:
    """Threads of this process take turns more often. A claim goes through several statements, and gets its turn anew
    after each: beside pages that are being made it would otherwise wait 5 ms for each of them."""
    sys.setswitchinterval(min(sys.getswitchinterval(), TURN))


class Beside(threading.Thread):
    """A dashboard beside a worker, on a loop of its own: a page that is slow to make holds up no turn."""

    def __init__(self, made: Server, sockets: list[socket.socket] | None = None) -> None:
        super().__init__(name="treadle-web", daemon=True)
        self._server = made
        self._sockets = sockets

    def run(self) -> None:
        yield_soon()
        try:
            asyncio.run(self._server.serve(self._sockets))
        except Exception:
            log.exception("the dashboard has ended")

    def stop(self) -> None:
        self._server.should_exit = True
