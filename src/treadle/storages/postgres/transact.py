"""A transaction of the caller's, begun and ended here, on a connection of any library that `drivers` knows."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from . import drivers
from .connect import Target


@contextmanager
def transact(connection: Any) -> Generator[Any]:
    match drivers.kind_of(connection):
        case "psycopg.Connection":
            with connection.transaction():
                yield connection
        case "sqlalchemy.Session" | "sqlalchemy.Connection":
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        case "django":
            atomic: Any = importlib.import_module("django.db.transaction").atomic
            with atomic(using=connection.alias, durable=True):
                yield connection
        case _ if connection is None:
            raise TypeError("give the connection that the task writes with: ctx.transaction_sync(connection)")
        case "":
            raise drivers.refuse(connection, "a connection to PostgreSQL")
        case other:
            raise drivers.refuse(connection, f"a sync connection ({other} is async: use ctx.transaction)")


@asynccontextmanager
async def transact_async(connection: Any, target: Target, deadline: float) -> AsyncGenerator[Any]:
    match drivers.kind_of(connection):
        case "asyncpg.Connection" | "psycopg.AsyncConnection":
            async with connection.transaction():
                yield connection
        case "sqlalchemy.AsyncSession" | "sqlalchemy.AsyncConnection":
            try:
                if not connection.in_transaction():
                    await connection.begin()
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()
        case _ if connection is None:
            own: Any = await target.connect(deadline)
            try:
                async with own.transaction():
                    yield own
            finally:
                await own.close()
        case "":
            raise drivers.refuse(connection, "a connection to PostgreSQL")
        case other:
            raise drivers.refuse(connection, f"an async connection ({other} is sync: use ctx.transaction_sync)")
