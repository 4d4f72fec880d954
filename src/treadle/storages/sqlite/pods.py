"""What is known of pods beside their leases: stats, wishes, stacks, shares; and the tasks that wait for a pod."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ...core.balance import Share
from ...core.pod import Wish
from ...core.warnings import DueTask
from ...ports import Clock
from . import rows
from .news import News
from .rows import Database
from .sql import statement
from .writer import Operation

T = TypeVar("T")

MOST_COUNTED: Final = 100


class PodVerbs:
    """The verbs. `_read` and `_write` are the storage's own."""

    _clock: Clock

    async def order_pod(self, pod: str, wish: Wish | None, *, stacks: bool = False, by: str | None = None) -> bool:
        def operation(db: sqlite3.Connection, news: News) -> bool:
            news.settings = order(db, pod, wish, stacks, by, self._clock)
            return news.settings

        return await self._write(operation)

    async def save_shares(self, shares: Sequence[Share]) -> None:
        def operation(db: sqlite3.Connection, news: News) -> None:
            save_shares(db, shares)
            news.settings = True

        if shares:
            await self._write(operation, relaxed=True)

    async def due_tasks(self) -> Sequence[DueTask]:
        return await self._read(lambda db: due_tasks(db, self._clock.now()))

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError


def order(db: Database, pod: str, wish: Wish | None, stacks: bool, by: str | None, clock: Clock) -> bool:
    done = db.execute(
        statement("pod_order"), (pod, clock.boot(), clock.steady(), wish, by, clock.now() if stacks else None)
    )
    return done.rowcount > 0


def save_shares(db: Database, shares: Sequence[Share]) -> None:
    for each in shares:
        if each.share is None:
            db.execute("delete from treadle_share where pod = ? and queue = ?", (each.pod, each.queue))
        else:
            db.execute(statement("share_save"), (each.queue, each.pod, each.share))


def drop_shares(db: Database, pod: str) -> None:
    db.execute("delete from treadle_share where pod = ?", (pod,))


def shares(db: Database) -> dict[str, dict[str, int]]:
    """All shares, by pod."""
    found: dict[str, dict[str, int]] = {}
    for queue, pod, share in db.execute("select queue, pod, share from treadle_share order by queue"):
        found.setdefault(pod, {})[queue] = share
    return found


def shares_of(db: Database, pod: str) -> dict[str, int]:
    return dict(db.execute("select queue, share from treadle_share where pod = ? order by queue", (pod,)).fetchall())


def serving(db: Database, boot: str, steady: float) -> tuple[int, dict[str, int]]:
    """How many pods live, and how many of those that are not quiet serve each queue."""
    live = db.execute(statement("pods_serving"), (boot, steady)).fetchall()
    counts: dict[str, int] = {}
    for id, card, stats, wish in live:
        said = rows.stats_of(stats)
        if wish == "serve" and not (said is not None and said.quiet):
            for name in rows.card_of(str(id), card).queues:
                counts[name] = counts.get(name, 0) + 1
    return len(live), counts


def due_tasks(db: Database, now: float) -> list[DueTask]:
    """By the heads of the claim's index: what it costs grows with the tasks and priorities there are, not the jobs."""
    found: list[DueTask] = []
    for (queue,) in db.execute("select name from treadle_queue order by name").fetchall():
        oldest: dict[str, float] = {}
        counts: dict[str, int] = {}
        for task, priority, run_at, _later in db.execute(statement("claim_heads"), (queue, now)).fetchall():
            if isinstance(task, str) and isinstance(run_at, (int, float)) and run_at <= now:
                enough = MOST_COUNTED - counts.get(task, 0)
                (count,) = db.execute(statement("due_count"), (queue, task, priority, now, enough)).fetchone()
                counts[task] = counts.get(task, 0) + count
                oldest[task] = min(run_at, oldest.get(task, now))
        found += [DueTask(queue, task, counts[task], now - oldest[task]) for task in sorted(oldest)]
    return found
