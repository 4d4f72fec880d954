"""Reading a request's body: bounded, never decompressed, of the one type that is asked for."""

from __future__ import annotations

from typing import Final

from starlette.requests import ClientDisconnect, Request

from .problem import Problem

MOST: Final = 2 * 1024 * 1024
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


async def read(request: Request, media: str, most: int = MOST) -> bytes:
    """The body; empty if there is none. It is refused as soon as it is known to be too large or of another type."""
    headers = request.headers
    declared = headers.get("content-length")
    if declared is not None and (not declared.isdigit() or int(declared) > most):
        raise _too_large(most)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported_media", "bodies are not decompressed here: send it as it is")
    given = headers.get("content-type")
    if given is not None and given.partition(";")[0].strip().lower() != media:
        raise Problem("unsupported_media", f"the body must be {media}")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise _too_large(most)
            parts.append(part)
    except ClientDisconnect:
        raise Problem("validation", "the body ended early") from None
    if size and given is None:
        raise Problem("unsupported_media", f"the body must be {media}, and say so in its Content-Type")
    return b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem("too_large", f"the body is larger than {most:,} bytes", headers={"Connection": "close"})
