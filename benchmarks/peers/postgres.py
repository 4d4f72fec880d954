"""What all peers on PostgreSQL have in common."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from .. import venvs
from . import COMMON, TALLY

URL = "BENCH_PG_URL"  # in the environment of its producer and workers
POOL = 16  # connections of a producer with many callers, for peers that need one per call


class PostgresPeer:
    name: str
    requirements: tuple[str, ...] = ()  # of its own virtual environment; none: it runs in ours
    left: str  # a query: how many jobs are not finished
    share = 1.0
    stop = signal.SIGTERM
    does = COMMON | {"pickup", "trips"}
    storage = "postgres"

    @property
    def python(self) -> str:
        return venvs.python(self.name) if self.requirements else sys.executable

    def environ(self, place: Path) -> dict[str, str]:
        from .. import server

        return {URL: server.url(place), TALLY: str(place / "tally")}

    def slotted(self, slots: int) -> list[str]:
        return self.worker({"default": slots})

    def worker(self, queues: dict[str, int]) -> list[str]:
        raise NotImplementedError

    def database(self, place: Path) -> Path | None:
        return None

    def unfinished(self, place: Path) -> int:
        from .. import server

        return server.ask(place, self.left)

    def backlog(self, place: Path, scheduled: int, finished: int) -> None:
        raise NotImplementedError
