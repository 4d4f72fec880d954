"""Signing: how a receiver knows that a request came from us, unchanged, and just now.

HMAC-SHA256 over `timestamp.token.body`. The token is that of the attempt, so that two attempts of one job never have
the same signature. For services that are asked by `app.http`:

    from treadle.signing import verify

    verify(request.headers, await request.body(), SECRET)
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable, Mapping
from typing import Final

from .core.errors import TreadleError

TIMESTAMP: Final = "X-Treadle-Timestamp"
TOKEN: Final = "X-Treadle-Token"  # noqa: S105 (a name)
SIGNATURE: Final = "X-Treadle-Signature"
TOLERANCE: Final = 300.0
_SCHEME: Final = "v1="


class BadSignature(TreadleError):
    """A request that cannot be believed: unsigned, changed on its way, signed with another secret, or too old.

    >>> from treadle.signing import verify
    >>> verify({}, b"{}", "secret")
    Traceback (most recent call last):
    treadle.BadSignature: …
    """


def sign(body: bytes, secret: str, *, token: str, at: float) -> dict[str, str]:
    """The three headers of a signed request."""
    timestamp = str(int(at))
    return {TIMESTAMP: timestamp, TOKEN: token, SIGNATURE: _SCHEME + _digest(secret, timestamp, token, body)}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> None:
    """BadSignature unless this body was signed with the secret (or one of several, while you change it), at most
    `tolerance` seconds ago. Give the body as it came, before anybody parsed it."""
    found = {str(name).lower(): value for name, value in headers.items()}
    timestamp, token, given = (found.get(name.lower()) for name in (TIMESTAMP, TOKEN, SIGNATURE))
    if timestamp is None or token is None or given is None:
        raise BadSignature("the request is not signed")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 16):
        raise BadSignature("the timestamp is not a number of seconds")
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not all(secrets):
        raise ValueError("an empty secret would let everybody in")
    expected = [_SCHEME + _digest(each, timestamp, token, body) for each in secrets]
    told = given.encode("utf-8", "replace")
    if not sum(hmac.compare_digest(each.encode(), told) for each in expected):  # all, at the same cost
        raise BadSignature("the signature is not that of this body")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise BadSignature("the request is too old, or from the future")


def _digest(secret: str, timestamp: str, token: str, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.{token}.".encode("utf-8", "replace") + body, "sha256").hexdigest()
