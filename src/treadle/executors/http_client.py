"""One POST over HTTP/1.1, to an address that was looked at before: no redirects, no proxies, no second lookup.

Written by hand because that is the point: the usual clients resolve the name themselves, after whoever checked it. What
is here is the part of the protocol that one request needs, and each part of it is bounded. (docs/adr/0019.)
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

LONGEST_LINE: Final = 8 * 1024
MOST_HEADERS: Final = 100
MOST_INTERIM: Final = 10
_DIGITS: Final = 15
_NO_BODY: Final = (204, 304)


class BadResponse(Exception):
    """What came back is no HTTP, or not enough of it."""


class Response(Struct, frozen=True):
    status: int
    headers: dict[str, str]  # by lower-case name; the first of several
    body: bytes
    is_whole: bool = True  # or there was more than we cared to read


class Line:
    """A connection that is open, for one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str, port: int, *, tls: ssl.SSLContext | None, name: str, patience: float) -> Line:
        """To an address, never to a name; the `name` is what its certificate must say. OSError if it fails."""
        async with asyncio.timeout(patience):
            found = await asyncio.open_connection(
                address, port, ssl=tls, server_hostname=None if tls is None else name, limit=LONGEST_LINE
            )
        return cls(*found)

    async def post(self, authority: str, path: str, headers: Mapping[str, str], body: bytes, limit: int) -> Response:
        """Ask, and read at most `limit` bytes of the answer. OSError or BadResponse if there is none."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {authority}", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        with contextlib.suppress(ConnectionError):  # it may have answered before it had read everything
            await self._writer.drain()
        return await _read(self._reader, limit)

    def close(self) -> None:
        self._writer.transport.abort()  # a polite end could wait for the far side


async def _read(reader: asyncio.StreamReader, limit: int) -> Response:
    for _ in range(MOST_INTERIM):
        status = _status(await _line(reader))
        headers = await _headers(reader)
        if status < 200:
            continue  # more is to come
        body, is_whole = (b"", True) if status in _NO_BODY else await _body(reader, headers, limit)
        return Response(status, headers, body, is_whole)
    raise BadResponse("no answer, but a promise of one, again and again")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise BadResponse("a line without end") from None
    except asyncio.IncompleteReadError:
        raise BadResponse("the connection ended in the middle of the answer") from None
    return line.rstrip(b"\r\n")


def _status(line: bytes) -> int:
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not code.isdigit() or rest[3:4] not in (b"", b" "):
        raise BadResponse("the answer is not HTTP")
    return int(code)


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(MOST_HEADERS + 1):
        line = await _line(reader)
        if not line:
            return found
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise BadResponse("a header that cannot be read")
        if name.lower() in ("content-length", "transfer-encoding") and name.lower() in found:
            raise BadResponse("two headers say how long the answer is")
        found.setdefault(name.lower(), value.strip())
    raise BadResponse("too many headers")


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str], limit: int) -> tuple[bytes, bool]:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise BadResponse("the length of the answer is not clear")
        return await _chunks(reader, limit)
    if length is not None:
        if not (length.isascii() and length.isdigit() and len(length) <= _DIGITS):
            raise BadResponse("the length of the answer is no number")
        wanted = int(length)
        body = await _exactly(reader, min(wanted, limit))
        return body, wanted <= limit
    found = bytearray()
    while len(found) <= limit and (piece := await reader.read(64 * 1024)):
        found += piece
    return bytes(found[:limit]), len(found) <= limit


async def _chunks(reader: asyncio.StreamReader, limit: int) -> tuple[bytes, bool]:
    found = bytearray()
    while True:
        size, _, _ = (await _line(reader)).partition(b";")
        try:
            wanted = int(size.strip().decode("ascii"), 16) if len(size) <= _DIGITS and b"_" not in size else -1
        except (ValueError, UnicodeError):
            wanted = -1
        if wanted < 0:
            raise BadResponse("a chunk without a length")
        if wanted == 0:
            return bytes(found), True  # what may follow says nothing that we ask for
        if len(found) + wanted > limit:
            found += await _exactly(reader, limit - len(found))
            return bytes(found), False
        found += await _exactly(reader, wanted)
        if await _line(reader):
            raise BadResponse("a chunk that is longer than its length")


async def _exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError:
        raise BadResponse("the connection ended in the middle of the answer") from None
