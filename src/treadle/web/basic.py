"""Basic: one name and one password, for who has a password manager and no wish for tokens.

The password comes from the environment or from a file that only its owner can read, never from the command line, where
everybody on the machine could see it. Kept is a hash of it with a salt of this process. It is for loopback, for TLS,
and for a proxy that has TLS: elsewhere it would be read on the way. A browser sends it unasked, so that whatever
changes something needs proof of the same origin, as with a cookie. Who guesses has ten tries a minute.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.requests import Request

from ..core.errors import ConfigError
from .access import ROLES, Access
from .guesses import Guesses

SHORTEST: Final = 12


class Basic:
    """What `Dashboard(access=…)` asks."""

    challenge: Final = 'Basic realm="treadle", charset="UTF-8"'

    def __init__(
        self, user: str, password: str, role: str = "admin", *, clock: Callable[[], float] = lambda: time.time()
    ) -> None:
        if not user or ":" in user or not user.isprintable():
            raise ConfigError("basic: a user's name has no colon in it, and is not empty")
        if role not in ROLES:
            raise ConfigError(f"there is no role {role!r}: one of {', '.join(ROLES)}")
        if len(password) < SHORTEST:
            raise ConfigError(f"basic: a password of fewer than {SHORTEST} characters can be guessed; use a longer one")
        self._access = Access(user, role)
        self._salt = secrets.token_bytes(16)
        self._kept = self._hashed(f"{user}:{password}".encode())
        self._guesses = Guesses(clock)

    def __call__(self, request: Request) -> Access | None:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        self._guesses.check(request)
        # Name and password in one: neither is told apart by the time it takes, nor by the answer.
        if not hmac.compare_digest(self._hashed(_decoded(value)), self._kept):
            self._guesses.note(request)
            return None
        return self._access

    def _hashed(self, given: bytes) -> bytes:
        return hashlib.blake2b(given, key=self._salt).digest()


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def parsed(text: str) -> tuple[str, str]:
    """`ann`, or `ann:viewer`."""
    user, _, role = text.partition(":")
    if role and role not in ROLES:  # it may be a password: it is not told
        raise ConfigError(
            f"basic: behind the colon stands a role ({', '.join(ROLES)}), never a password: put that into "
            "TREADLE_WEB_PASSWORD, or into a file that web.password_file names"
        )
    return user, role or "admin"


def password_of(given: str | None, path: str | None) -> str:
    """From the environment, or from a file; ConfigError if neither has one, or others can read the file."""
    if given:
        return given
    if path is None:
        raise ConfigError("basic: give the password in TREADLE_WEB_PASSWORD, or in a file by TREADLE_WEB_PASSWORD_FILE")
    file = Path(path).expanduser()
    try:
        mode = file.stat().st_mode
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"the password file {file} cannot be read: {reason}") from None
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise ConfigError(f"the password file {file} can be read by others: chmod 600 {file}")
    return text.strip("\r\n")
