"""What all peers on PostgreSQL have in common."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from .. import venvs
from . import TALLY

URL = "BENCH_PG_URL"  # in the environment of its producer and workers
POOL = 16  # connections of a producer with many callers, for peers that need one per call


class PostgresPeer:
    name: str
    requirements: tuple[str, ...] = ()  # of its own virtual environment; none: it runs in ours
    left: str  # a query: how many jobs are not finished
    share = 1.0
    stop = signal.SIGTERM
    does = frozenset({"drain", "drain-two", "bulk", "callers-100", "caller-1", "pickup"})

    @property
    def python(self) -> str:
        return venvs.python(self.name) if self.requirements else sys.executable

    def environ(self, place: Path) -> dict[str, str]:
        from .. import server

        return {URL: server.url(place), TALLY: str(place / "tally")}

    def database(self, place: Path) -> Path | None:
        return None

    def unfinished(self, place: Path) -> int:
        from .. import server

        return server.ask(place, self.left)

    def backlog(self, place: Path, scheduled: int, finished: int) -> None:
        raise NotImplementedError
