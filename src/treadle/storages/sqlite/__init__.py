"""Jobs in one SQLite file, shared by as many processes of one host as like to."""

from .storage import SQLiteStorage

__all__ = ["SQLiteStorage"]
