"""The server: uvicorn, with patience that ends, streams that end at a stop, and no word about itself."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .proxied import Proxied

if TYPE_CHECKING:
    from .dashboard import Dashboard

log = logging.getLogger("treadle.web")

SLOWEST_HEAD: Final = 10.0  # from the first byte of a request, or from its connection, to the end of its headers
LARGEST_HEAD: Final = 16 * 1024
MOST_CONNECTIONS: Final = 1000
IDLE: Final = 5
GRACE: Final = 5
TURN: Final = 0.001


class _Protocol(H11Protocol):
    """A client that says nothing, or a letter a minute, is let go."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

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


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, web: Dashboard) -> None:
        super().__init__(config)
        self._web = web

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: it raises the signal again in the end, and a graceful stop would look like a kill.
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: Any = None) -> None:
        await self._web.close()  # or streams would keep it
        await super().shutdown(sockets)


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
    config = uvicorn.Config(
        Proxied(web, proxies) if proxies else web,
        host=host,
        port=port,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    return Server(config, web)


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
