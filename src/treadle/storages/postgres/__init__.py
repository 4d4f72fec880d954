"""Jobs in a PostgreSQL schema, shared by as many pods on as many hosts as like to."""

from .storage import PostgresStorage

__all__ = ["PostgresStorage"]
