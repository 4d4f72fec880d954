"""Drivers: how a talk is held on a connection that is somebody else's.

Nothing is imported here: whoever hands in a psycopg connection has psycopg. Kinds are told apart by the names of their
classes, and a session or a wrapper is asked for the driver's own connection underneath.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ...core.errors import StorageTimeout, StorageUnavailable
from . import connect
from .connect import Again, Lost
from .sql import Schema
from .talk import BadValue, Taken, Talk

T = TypeVar("T")

KINDS: Final = (
    "psycopg.Connection",
    "psycopg.AsyncConnection",
    "asyncpg.Connection",
    "sqlalchemy Session, Connection, AsyncSession, AsyncConnection",
    "django.db.connection",
)
_BEGIN_ONE: Final = "begin one, or enqueue without within="


class Refused(StorageUnavailable):
    """A connection that cannot be shared, and what to do about it."""


def kind_of(connection: object) -> str:
    """What it is, by its class or one that it derives from; "" for a stranger."""
    for each in type(connection).__mro__:
        module, name = each.__module__, each.__qualname__
        root = module.partition(".")[0]
        if root == "psycopg" and name in ("Connection", "AsyncConnection"):
            return f"psycopg.{name}"
        if root == "asyncpg" and name in ("Connection", "PoolConnectionProxy"):
            return "asyncpg.Connection"
        if root == "sqlalchemy" and name in ("Session", "scoped_session", "Connection"):
            return f"sqlalchemy.{name.replace('scoped_session', 'Session')}"
        if root == "sqlalchemy" and name in ("AsyncSession", "async_scoped_session", "AsyncConnection"):
            return f"sqlalchemy.{name.replace('async_scoped_session', 'AsyncSession')}"
        if root == "django" and name in ("BaseDatabaseWrapper", "ConnectionProxy"):
            return "django"
    return ""


def refuse(connection: object, wanted: str) -> TypeError:
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return TypeError(f"within= takes {wanted} here, not {name}; a PostgreSQL storage knows: {', '.join(KINDS)}")


# Sync ----------------------------------------------------------------------------------------------------------------


def unwrap(connection: Any) -> tuple[Any, Callable[[Callable[[], None]], None] | None]:
    """The psycopg connection underneath, and how to be called after its commit, if its library offers that."""
    match kind_of(connection):
        case "psycopg.Connection":
            return _in_transaction(connection), None
        case "sqlalchemy.Session":
            session = connection
            return _psycopg(session.connection().connection.driver_connection), lambda call: _after(session, call)
        case "sqlalchemy.Connection":
            if not connection.in_transaction():
                raise Refused(f"the SQLAlchemy connection is not in a transaction: {_BEGIN_ONE}")
            return _psycopg(connection.connection.driver_connection), None
        case "django":
            if not connection.in_atomic_block:
                raise Refused(
                    "Django's connection commits every statement by itself: use transaction.atomic(), "
                    "or enqueue without within="
                )
            connection.ensure_connection()
            return _psycopg(connection.connection), connection.on_commit
        case "":
            raise refuse(connection, "a connection to PostgreSQL")
        case other:
            raise refuse(connection, f"a sync connection ({other} is async: await the enqueue)")


def _psycopg(connection: Any) -> Any:
    if kind_of(connection) != "psycopg.Connection":
        raise refuse(connection, "a connection of psycopg 3")
    return _in_transaction(connection)


def _in_transaction(connection: Any) -> Any:
    # Without autocommit, psycopg begins with the first statement, and the caller's commit ends it.
    if connection.autocommit and connection.info.transaction_status.name == "IDLE":
        raise Refused(f"the psycopg connection is in autocommit and not in a transaction: {_BEGIN_ONE}")
    return connection


def _after(session: Any, call: Callable[[], None]) -> None:
    import importlib

    event: Any = importlib.import_module("sqlalchemy.event")

    def committed(_: object) -> None:
        call()

    event.listen(session, "after_commit", committed, once=True)


def carry(connection: Any, talk: Talk[T], schema: Schema) -> T:
    """Hold a talk on a psycopg connection."""
    import importlib

    cursor: Any = importlib.import_module("psycopg").RawCursor(connection)
    try:
        text, parameters = next(talk)
        while True:
            try:
                cursor.execute(schema(text), parameters or None)
                rows: list[Any] = cursor.fetchall() if cursor.description is not None else []
            except Exception as error:
                told = _told(error)
                if isinstance(told, (BadValue, Taken)):
                    text, parameters = talk.throw(told)
                    continue
                raise told from error
            text, parameters = talk.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    except Taken as error:
        raise StorageTimeout(str(error)) from error
    finally:
        talk.close()
        cursor.close()


# Async ---------------------------------------------------------------------------------------------------------------


async def unwrap_async(connection: Any) -> tuple[Any, Callable[[Callable[[], None]], None] | None]:
    """The asyncpg or async psycopg connection underneath, and how to be called after its commit."""
    match kind_of(connection):
        case "asyncpg.Connection":
            if not connection.is_in_transaction():
                raise Refused(f"the asyncpg connection is not in a transaction: {_BEGIN_ONE}")
            return connection, None
        case "psycopg.AsyncConnection":
            return _in_transaction(connection), None
        case "sqlalchemy.AsyncSession":
            session = connection.sync_session
            return await _driver_of(await connection.connection()), lambda call: _after(session, call)
        case "sqlalchemy.AsyncConnection":
            if not connection.in_transaction():
                raise Refused(f"the SQLAlchemy connection is not in a transaction: {_BEGIN_ONE}")
            return await _driver_of(connection), None
        case "":
            raise refuse(connection, "a connection to PostgreSQL")
        case other:
            raise refuse(connection, f"an async connection ({other} is sync: use enqueue_sync)")


async def _driver_of(connection: Any) -> Any:
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    kind = kind_of(driver)
    if kind not in ("asyncpg.Connection", "psycopg.AsyncConnection"):
        raise refuse(driver, "a connection of asyncpg or psycopg 3")
    if kind == "asyncpg.Connection" and not driver.is_in_transaction():
        await connection.exec_driver_sql("select 1")  # SQLAlchemy begins with the first statement that it sees
    return driver


async def carry_async(connection: Any, talk: Talk[T], schema: Schema) -> T:
    """Hold a talk on a connection of asyncpg or async psycopg."""
    is_asyncpg = kind_of(connection) == "asyncpg.Connection"
    ask = _ask_asyncpg if is_asyncpg else _ask_psycopg
    try:
        text, parameters = next(talk)
        while True:
            try:
                rows = await ask(connection, schema(text), parameters)
            except Exception as error:
                told = _told(error)
                if isinstance(told, (BadValue, Taken)):
                    text, parameters = talk.throw(told)
                    continue
                raise told from error
            text, parameters = talk.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    except Taken as error:
        raise StorageTimeout(str(error)) from error
    finally:
        talk.close()


async def _ask_asyncpg(connection: Any, text: str, parameters: tuple[Any, ...]) -> list[Any]:
    if parameters or text.lstrip().startswith("select"):
        rows: list[Any] = await connection.fetch(text, *parameters)
        return rows
    await connection.execute(text)
    return []


async def _ask_psycopg(connection: Any, text: str, parameters: tuple[Any, ...]) -> list[Any]:
    import importlib

    async with importlib.import_module("psycopg").AsyncRawCursor(connection) as cursor:
        await cursor.execute(text, parameters or None)
        rows: list[Any] = await cursor.fetchall() if cursor.description is not None else []
        return rows


def _told(error: Exception) -> BaseException:
    """The error as our own. On a connection of the caller's nothing is tried again: its transaction is its own."""
    if type(error).__name__ == "DataError" and getattr(error, "sqlstate", None) is None:
        return BadValue(str(error))
    told = connect.explained(error)
    if isinstance(told, (Lost, Again)):
        return StorageUnavailable(f"your transaction cannot go on: {told}")
    if isinstance(told, BadValue) and "current transaction is aborted" in str(told):
        return StorageUnavailable("your transaction has failed already: roll it back")
    return told
