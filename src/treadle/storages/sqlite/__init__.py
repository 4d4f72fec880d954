"""Jobs in one SQLite file, shared by as many processes of one host as like to."""

import sys

from ...core.errors import StorageUnavailable

if sys.platform == "win32":
    raise StorageUnavailable("the SQLite storage needs flock and FIFOs, which Windows lacks: use PostgreSQL there")

from .storage import SQLiteStorage

__all__ = ["SQLiteStorage"]
