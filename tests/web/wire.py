"""A client without a socket. A stream is let go once it has begun: `httpx.ASGITransport` would wait for its end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx


class Wire(httpx.AsyncBaseTransport):
    def __init__(self, app: Any, root_path: str = "", client: str = "127.0.0.1") -> None:
        self._app = app
        self._root = root_path
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        status, headers, body = await self.call(
            {
                "method": request.method,
                "scheme": url.scheme,
                "path": url.path,
                "raw_path": url.raw_path.split(b"?")[0],
                "query_string": url.query,
                "headers": [(name.lower(), value) for name, value in request.headers.raw],
                "server": (url.host, url.port or 80),
            },
            await request.aread(),
        )
        return httpx.Response(status, headers=headers, content=body, request=request)

    async def status(self, method: str, path: str, headers: dict[str, str]) -> int:
        """What is answered to a request, for those who have thousands: most of the time would be the client's."""
        named = {"host": "localhost", "accept": "*/*", **{name.lower(): value for name, value in headers.items()}}
        scope = {
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "server": ("localhost", 80),
        }
        return (await self.call(scope, b""))[0]

    async def call(self, scope: dict[str, Any], sent: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        gone = asyncio.Event()
        has_body = True
        status = 0
        headers: list[tuple[bytes, bytes]] = []
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            nonlocal has_body
            if has_body:
                has_body = False
                return {"type": "http.request", "body": sent, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], list(message.get("headers", ()))
                if any(name == b"content-type" and b"event-stream" in value for name, value in headers):
                    gone.set()
            else:
                parts.append(message.get("body", b""))

        whole = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "root_path": self._root,
            "client": (self._client, 12345),
            **scope,
        }
        await self._app(whole, receive, send)
        gone.set()
        return status, headers, b"".join(parts)


class Sender:
    """A request whose body comes in parts, when the test says so, or never to an end."""

    def __init__(
        self,
        web: Any,
        path: str,
        *parts: bytes,
        method: str = "POST",
        ends: bool = True,
        address: str = "192.0.2.7",
        root: str = "",
        http_version: str = "1.1",
        **headers: str,
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.received = 0  # how often the app has asked for more
        self.more: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()
        for number, part in enumerate(parts, 1):
            self.more.put_nowait((part, not ends or number < len(parts)))
        given = {"host": "localhost", "sec-fetch-site": "same-origin", "content-type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if "transfer-encoding" not in given:
            given.setdefault("content-length", str(sum(map(len, parts)) + (0 if ends else 1)))
        self.declared = "transfer-encoding" in given or given["content-length"] != "0"
        self._scope = {
            "type": "http", "asgi": {"version": "3.0"}, "method": method, "path": f"{root}{path}", "query_string": b"",
            "scheme": "http", "root_path": "", "client": (address, 1), "server": ("localhost", 80),
            "http_version": http_version, "headers": [(name.encode(), each.encode()) for name, each in given.items()],
        }  # fmt: skip
        self.task = asyncio.ensure_future(web(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        self.received += 1
        part, more = await self.more.get()
        return {"type": "http.request", "body": part, "more_body": more}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.text += message.get("body", b"").decode()

    async def answer(self) -> Sender:
        async with asyncio.timeout(20):
            await self.task
        return self

    @property
    def kind(self) -> str:
        return str(json.loads(self.text)["error"]["kind"])

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"
