"""A client without a socket. A stream is let go once it has begun: `httpx.ASGITransport` would wait for its end."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx


class Wire(httpx.AsyncBaseTransport):
    def __init__(self, app: Any, root_path: str = "", client: str = "127.0.0.1") -> None:
        self._app = app
        self._root = root_path
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent = await request.aread()
        gone = asyncio.Event()
        has_body = True
        status, headers, parts = 0, [], []

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

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "root_path": self._root,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": (self._client, 12345),
            "server": (request.url.host, request.url.port or 80),
        }
        await self._app(scope, receive, send)
        gone.set()
        return httpx.Response(status, headers=headers, content=b"".join(parts), request=request)
