"""Basic: one name and one password, for who has a password manager and no wish for tokens.

The password comes from the environment or from a file that only its owner can read, never from the command line, where
everybody on the machine could see it. Kept is a hash of it with a salt of this process. It is for loopback, for TLS,
and for a proxy that has TLS: elsewhere it would be read on the way. A browser sends it unasked, so that whatever
changes something needs proof of the same origin, as with a cookie.

A password can be guessed, so that guesses are limited (`core.login_throttle`): ten wrong ones a minute from one
address, sixty from all addresses together, and then no password is compared until it is time again. That must not lock
out its owner while somebody guesses. So a browser that has once been right gets a cookie, with which it is counted by
itself, whatever others do from its address; and an address from which the password came within a day (a program's,
which keeps no cookies) does not share in the sixty. The cookie proves nothing but this: every request still needs the
password.
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
from ..core.login_throttle import MOST_TOGETHER, Throttle
from .access import ROLES, Access
from .login_throttle import caller, too_many

SHORTEST: Final = 12
KNOWN: Final = "treadle-known"  # the cookie of a browser that was right once
KNOWN_BROWSER: Final = 30 * 86_400
KNOWN_ADDRESS: Final = 86_400.0
MOST_ADDRESSES: Final = 1_000


class Basic:
    """What `Dashboard(access=…)` asks."""

    challenge: Final = 'Basic realm="treadle", charset="UTF-8"'

    def __init__(
        self, user: str, password: str, role: str = "admin", *, clock: Callable[[], float] = lambda: time.monotonic()
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
        self._clock = clock
        self._throttle = Throttle(together=MOST_TOGETHER)
        self._addresses: dict[str, float] = {}  # from which the password came, and when: an attacker adds none

    def __call__(self, request: Request) -> Access | None:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return None
        now, address, browser = self._clock(), caller(request), self._browser(request)
        bucket = address if browser is None else f"browser {browser}"
        known = browser is not None or now - self._addresses.get(address, -KNOWN_ADDRESS) < KNOWN_ADDRESS
        if wait := self._throttle.wait(bucket, now, known=known):
            raise too_many(wait)
        # Name and password in one: neither is told apart by the time it takes, nor by the answer.
        if not hmac.compare_digest(self._hashed(_decoded(value)), self._kept):
            self._throttle.note(bucket, now, known=known)
            return None
        self._addresses.pop(address, None)
        if len(self._addresses) >= MOST_ADDRESSES:
            self._addresses.pop(next(iter(self._addresses)))
        self._addresses[address] = now
        if browser is None:
            self._get_to_know(request)
        return self._access

    def _browser(self, request: Request) -> str | None:
        """The name that a browser was given here when its password was right."""
        name, _, proof = request.cookies.get(KNOWN, "").partition(".")
        return name if proof and hmac.compare_digest(proof.encode(), self._proof(name).encode()) else None

    def _get_to_know(self, request: Request) -> None:
        name = secrets.token_urlsafe(12)
        request.scope["state"]["cookie"] = {
            "key": KNOWN,
            "value": f"{name}.{self._proof(name)}",
            "max_age": KNOWN_BROWSER,
            "path": str(request.scope.get("root_path") or "/"),
            "secure": request.url.scheme == "https",
            "httponly": True,
            "samesite": "strict",
        }

    def _proof(self, name: str) -> str:
        given = name.encode("utf-8", "replace")
        return hashlib.blake2b(given, digest_size=32, key=self._salt, person=b"treadle-known").hexdigest()

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
