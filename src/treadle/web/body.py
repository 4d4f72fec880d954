"""A request's body: bounded in size and in time, never decompressed, of the one type that is asked for.

It is read after the Gate has let its request pass, by a deadline that grows with what has arrived
(`core.request_body`). While it is read it counts against what bodies may hold in memory together: those of nobody in
particular, and those of callers who are known, each with a share for one address or one user (`core.share`).

A body that nobody reads (of a refused request, of a GET) must not keep its connection either. What is small and at hand
is let pass by, so that the connection can be used again and the answer is not lost to a reset; for anything else the
answer says `Connection: close`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope

from ..core.request_body import LARGEST, LARGEST_UNREAD, Length, is_too_large, length_of, time_for
from ..core.share import Shares
from .problem import Problem

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"

HELD_ANONYMOUS: Final = 16 * 1024 * 1024  # bytes of bodies at once, of requests that need no login
HELD_KNOWN: Final = 64 * 1024 * 1024  # and of those that do
TO_PASS_BY: Final = 1.0  # seconds for a body that nobody reads
CLOSE: Final = {"Connection": "close"}


class Intake:
    """What was received of one request."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        headers = Headers(scope=scope)
        self._receive = receive
        self._length: Length = length_of(headers.get("content-length"), headers.get("transfer-encoding"))
        self._is_asked_for = headers.get("expect", "").lower() == "100-continue"
        self.is_h1 = str(scope.get("http_version", "1.1")).startswith("1")
        self._size = 0
        self.is_open = self._length is not None  # some of the body may still be on its way

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_open = False
        self._size += len(message.get("body", b""))
        return message

    async def must_close(self) -> bool:
        """Asked when the answer begins: whether its connection is lost for further requests. A small rest of the body
        is received first, and forgotten."""
        if not self.is_open or not self.is_h1:
            return False
        most = self._size + LARGEST_UNREAD
        if self._is_asked_for or is_too_large(self._length, 0, most):
            return True  # whoever asks before sending is not told to send
        try:
            async with asyncio.timeout(TO_PASS_BY):
                while self.is_open and not is_too_large(None, self._size, most):
                    await self.receive()
        except TimeoutError:
            pass
        return self.is_open


class Held:
    """The bytes of one body, counted for as long as its request lasts."""

    def __init__(self, shares: Shares, caller: str) -> None:
        self._shares = shares
        self._caller = caller
        self._size = 0

    def add(self, size: int) -> None:
        verdict = self._shares.take(self._caller, size)
        if verdict == "share":
            raise Problem("rate_limited", "too much is being sent from here at once: wait", headers=CLOSE)
        if verdict == "full":
            raise Problem("unavailable", "too much is being sent to this server at once: try again", headers=CLOSE)
        self._size += size

    def give_back(self) -> None:
        if self._size:
            self._shares.give_back(self._caller, self._size)
            self._size = 0


async def read(request: Request, media: str, most: int = LARGEST, held: Held | None = None) -> bytes:
    """The body; empty if there is none. It is refused as soon as it is known to be too large, too slow or of another
    type."""
    headers = request.headers
    length = length_of(headers.get("content-length"), headers.get("transfer-encoding"))
    if is_too_large(length, 0, most):
        raise _too_large(most)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported_media", "bodies are not decompressed here: send it as it is")
    given = headers.get("content-type")
    if given is not None and given.partition(";")[0].strip().lower() != media:
        raise Problem("unsupported_media", f"the body must be {media}")
    parts: list[bytes] = []
    size = 0
    begun = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(begun + time_for(0)) as limit:
            async for part in request.stream():
                size += len(part)
                if is_too_large(length, size, most):
                    raise _too_large(most)
                if held is not None and part:
                    held.add(len(part))
                parts.append(part)
                limit.reschedule(begun + time_for(size))
    except ClientDisconnect:
        raise Problem("validation", "the body ended early") from None
    except TimeoutError:
        raise Problem("too_slow", f"the body did not come within {time_for(size):.0f} s", headers=CLOSE) from None
    if size and given is None:
        raise Problem("unsupported_media", f"the body must be {media}, and say so in its Content-Type")
    return b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem("too_large", f"the body is larger than {most:,} bytes", headers=CLOSE)
