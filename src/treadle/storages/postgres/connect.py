"""Connecting, and what errors mean.

A connection is ours alone and carries no session state, so that any of them may in truth be a pooler's: no prepared
statement outlives its use there, no setting outlives its transaction. Whether there is a pooler in between is seen at
the first connect: the process id that the greeting named is not that of the server's process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Final, Protocol

from ...core.errors import MissingExtra, StorageDenied, StorageTimeout, StorageUnavailable, TreadleError
from ...ports import ReadOnlyChoice
from .talk import BadValue, Taken

try:
    import asyncpg  # type: ignore[import-untyped]
except ImportError as missing:
    raise MissingExtra("the PostgreSQL storage", "asyncpg", "postgres") from missing

# The hot path calls functions, in a line each. What is longer looks for something, and is planned anew each time: when
# a prepared statement runs for the sixth time, the server may settle for one plan for all values, which reads a million
# rows for a name that few jobs have (measured: 4 ms become 90).
LONGEST_PREPARED: Final = 1_000
OLDEST: Final = 140_000
_driver: Final[Any] = asyncpg
_log: Final = logging.getLogger("treadle.postgres")

# By the first two characters of SQLSTATE: what a statement may not contain. (57P and 08 are about the connection.)
# P0: somebody's own trigger refuses it.
_BAD_VALUES: Final = frozenset({"22", "23", "54", "P0"})
_REFUSALS: Final = ("28", "3D", "42")  # who we are, which database, what we may do
_AGAIN: Final = frozenset({"40001", "40P01"})
_LOST: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300", "25006", "25P03", "26000", "42P05"})


class Connection(Protocol):
    """What we use of asyncpg's connection, which has no types of its own."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...
    async def execute(self, query: str) -> str: ...
    async def copy_to_table(
        self, table_name: str, *, source: AsyncIterable[bytes], columns: Sequence[str], schema_name: str, format: str
    ) -> str: ...
    async def close(self) -> None: ...
    def terminate(self) -> None: ...
    def is_closed(self) -> bool: ...
    def is_in_transaction(self) -> bool: ...
    def get_server_pid(self) -> int: ...
    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...
    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...


class Lost(StorageUnavailable):
    """The connection is gone, or can no longer be used; what was under way may have been carried out or not."""

    passing = True


class Refused(Lost):
    """The server is there, and will not have us: a wrong password, no such database."""

    passing = False


class StandsBy(Lost):
    """It can be read, and not written: a standby."""


class Held(StorageTimeout):
    """Somebody else's open transaction holds what the call needs. Nothing was written."""


class Again(Exception):
    """A deadlock or a serialization failure: the transaction did not happen, and may be tried again."""


class Target:
    """Where to connect to, and what has been learnt about it."""

    def __init__(self, url: str, name: str, *, read_only: ReadOnlyChoice = False) -> None:
        self.url = url
        self.name = name
        self.read_only = read_only
        self.pooled: bool | None = None

    async def connect(self, deadline: float) -> Connection:
        """A connection, or `Lost`. The caller bounds the time as a whole; `deadline` bounds what the server may do."""
        connection = await self._connect()
        try:
            if self.pooled is None:
                pid = (await connection.fetch("select pg_backend_pid()"))[0][0]
                self.pooled = pid != connection.get_server_pid()
                if not self.pooled:
                    # The one that has just looked keeps no prepared statements.
                    connection.terminate()
                    connection = await self._connect()
            if not self.pooled:
                milliseconds = str(int(deadline * 1000))
                # Bounds what the server still does for us after we have given up. No pooler in between: it is ours. And
                # a process that stands still, or whose host is gone, in the middle of a transaction holds its rows no
                # longer than that: the server itself would notice after hours.
                await connection.execute(
                    f"set statement_timeout = {milliseconds}; set idle_session_timeout = 0; "
                    f"set idle_in_transaction_session_timeout = {milliseconds}"
                    + ("; set default_transaction_read_only = on" if self.read_only is True else "")
                )
        except BaseException as error:
            connection.terminate()
            if isinstance(error, Exception):
                raise explained(error) from error
            raise
        return connection

    async def _connect(self, attributes: str | None = None) -> Connection:
        attributes = attributes or ("any" if self.read_only is True else "read-write")
        try:
            connection: Connection = await _driver.connect(
                self.url,
                statement_cache_size=0 if self.pooled is not False else 200,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=LONGEST_PREPARED,
                server_settings={"application_name": self.name},
                target_session_attrs=attributes,
                timeout=60.0,
            )
        except _driver.TargetServerAttributeNotMatched as error:
            if self.read_only == "auto" and attributes != "any":
                return await self._connect("any")  # of several hosts, one that can be written would have been taken
            raise explained(error, connecting=True) from error
        except Exception as error:
            raise explained(error, connecting=True) from error
        return connection


def explained(error: BaseException, *, connecting: bool = False) -> BaseException:
    """The error as our own: which kind it is decides what happens to the connection and to the call."""
    if isinstance(error, (TreadleError, BadValue, Taken, Again)):
        return error
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str) and not connecting:
        return _by_state(state, error)
    if isinstance(error, TimeoutError):
        return StorageTimeout("PostgreSQL did not answer in time")
    if isinstance(error, _driver.TargetServerAttributeNotMatched):
        return Lost("the server is read-only, a standby: nothing can be written there")
    if isinstance(error, OSError):
        # "No such file or directory" alone tells nobody that it is about a server.
        return Lost(f"PostgreSQL cannot be reached: {_said(error)}")
    if isinstance(error, (_driver.InterfaceError, _driver.PostgresError, _driver.InternalClientError)):
        if isinstance(error, _driver.InterfaceError) and isinstance(error, ValueError):
            return BadValue(_said(error))  # asyncpg's own: it cannot encode a parameter
        if connecting and isinstance(state, str) and state[:2] in _REFUSALS:
            return Refused(_said(error))
        return Lost(_said(error))
    if isinstance(error, (ValueError, TypeError, OverflowError, UnicodeError)):
        return BadValue(f"{type(error).__name__}: {error}")
    return error


def _by_state(state: str, error: BaseException) -> BaseException:
    text = _said(error)
    if state[:2] in _BAD_VALUES:
        return BadValue(text)
    if state in _AGAIN:
        return Again(text)
    if state == "55P03":
        return Taken("another open transaction holds a row or a unique key that this needs")
    if state == "57014":
        return StorageTimeout("PostgreSQL ended the statement: it took too long")
    if state == "25006":
        return StandsBy("the server has become read-only, a standby: nothing can be written there")
    if state in _LOST or state[:2] == "08":
        return Lost(text)
    if state == "42501":
        return StorageDenied(f"{text}: the role of this login is for something else (see `treadle db roles`)")
    if state in ("42P01", "42883", "3F000"):
        return StorageUnavailable(f"the schema is not there, or not complete ({text}): run `treadle db migrate`")
    return StorageUnavailable(text)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if not str(error) else str(error).split("\n", 1)[0]


async def close(connection: Connection) -> None:
    """Say good-bye, but not for long."""
    try:
        async with asyncio.timeout(1.0):
            await connection.close()
    except Exception:
        connection.terminate()


def drop(connection: Connection) -> None:
    """Close the socket of a connection whose event loop has ended: nothing can be said any more."""
    transport: Any = getattr(connection, "_transport", None)
    if transport is None:
        return
    try:
        found = transport.get_extra_info("socket")
        connection.terminate()
    except RuntimeError:
        pass  # the loop is closed; what follows does without it
    else:
        if found is None:
            return
    raw = getattr(transport, "_sock", None)
    if raw is not None:
        raw.close()
        transport._sock = None  # or the transport would complain when it is collected
