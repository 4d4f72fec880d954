"""A dashboard that is really served, with workers behind it, on a loop of its own: a browser looks at it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from treadle import App
from treadle.web.access import Access, Authenticate
from treadle.web.dashboard import Dashboard

from . import scene

T = TypeVar("T")

OTHER_HOST = "treadle.test"  # leads here too, and is no loopback: to a browser it is another machine (see conftest.py)


def who(request: Request) -> Access | None:
    """Whoever the test says it is."""
    role = request.headers.get("x-role", "admin")
    return None if role == "nobody" else Access("ann", role)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Stage(threading.Thread):
    def __init__(
        self,
        app: App,
        *,
        living: bool = True,
        minutes: int = 90,
        prefix: str = "",
        env: str = "staging",
        access: Authenticate = who,
        filled: bool = True,
        port: int | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.app = app
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}{prefix}"
        self.scene: scene.Scene | None = None
        self.dashboard = Dashboard(app, access=access, env=env, color="#b5651d", hosts=[OTHER_HOST])
        self._prefix = prefix
        self._filled = filled
        self._living = living
        self._minutes = minutes
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._server: uvicorn.Server | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._play())
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._ready.set()
            self._loop.close()

    async def _play(self) -> None:
        if self._living:
            async with scene.living(self.app, self._minutes) as self.scene:
                await self._serve()
        else:
            if self._filled:
                self.scene = await scene.fill(self.app, minutes=self._minutes)
            await self._serve()
        await self.app.close()

    async def _serve(self) -> None:
        await self.app.open()
        self._server = self._new()
        serving = asyncio.ensure_future(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self._ready.set()
        await serving

    def _new(self) -> uvicorn.Server:
        served = Starlette(routes=[Mount(self._prefix, app=self.dashboard)]) if self._prefix else self.dashboard
        return uvicorn.Server(uvicorn.Config(served, port=self.port, log_config=None, timeout_graceful_shutdown=2))

    def wait(self) -> Stage:
        assert self._ready.wait(60)
        if self._error is not None:
            raise self._error
        return self

    def ask(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    def end(self) -> None:
        assert self._server is not None
        self.ask(self.dashboard.close())
        self._server.should_exit = True
        self.join(30)
