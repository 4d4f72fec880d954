"""What all peers on Redis have in common."""

from __future__ import annotations

import signal
from pathlib import Path

from .. import venvs
from . import COMMON, TALLY

URL = "BENCH_REDIS_URL"  # in the environment of its producer and workers


class RedisPeer:
    name: str
    requirements: tuple[str, ...] = ()
    left: tuple[tuple[str, ...], ...]  # commands whose answers together say how many jobs are not finished
    share = 1.0
    stop = signal.SIGTERM
    does = COMMON | {"pickup"}
    storage = "redis"

    @property
    def python(self) -> str:
        return venvs.python(self.name)

    def environ(self, place: Path) -> dict[str, str]:
        from .. import redis_server

        return {URL: redis_server.url(), TALLY: str(place / "tally")}

    def create(self, place: Path) -> None:
        """Redis needs no tables."""

    def database(self, place: Path) -> Path | None:
        return None

    def unfinished(self, place: Path) -> int:
        from .. import redis_server

        return sum(int(redis_server.ask(*command)) for command in self.left)

    def slotted(self, slots: int) -> list[str]:
        return self.worker({"default": slots})

    def worker(self, queues: dict[str, int]) -> list[str]:
        raise NotImplementedError

    def backlog(self, place: Path, scheduled: int, finished: int) -> None:
        raise NotImplementedError

    def command(self, name: str) -> str:
        """A program of its environment."""
        return str(Path(self.python).with_name(name))
