"""What the reference storage knows of pods beside their leases: stats, wishes, stacks, shares, and tasks that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...core.balance import Share
from ...core.job import CLAIMABLE
from ...core.pod import PodCard, PodStats, Wish
from ...core.warnings import DueTask
from ...ports import Clock, Wake

if TYPE_CHECKING:
    from .storage import _Row  # pyright: ignore[reportPrivateUsage]

MOST_COUNTED = 1_000


class PodRow(Struct):
    card: PodCard
    started_at: float
    beat_at: float
    lease_until: float
    boot: str
    lost: bool = False
    stats: PodStats | None = None
    wish: Wish = "serve"
    wish_by: str | None = None
    stacks: str | None = None
    stacks_at: float | None = None
    stacks_asked: float | None = None
    shares: dict[str, int] = {}

    @property
    def is_quiet(self) -> bool:
        return self.wish != "serve" or (self.stats is not None and self.stats.quiet)

    def seen(self) -> dict[str, Any]:
        """As `Pod` has it."""
        names = ("stats", "wish", "wish_by", "stacks", "stacks_at", "stacks_asked")
        return {**{name: getattr(self, name) for name in names}, "shares": dict(self.shares)}


class MemoryPods:
    _clock: Clock
    _lock: threading.RLock
    _rows: dict[str, _Row]
    _pods: dict[str, PodRow]
    _is_live: Callable[[str], bool]
    _tell: Callable[[Wake], None]

    async def order_pod(self, pod: str, wish: Wish | None, *, stacks: bool = False, by: str | None = None) -> bool:
        with self._lock:
            if not self._is_live(pod):
                return False
            row = self._pods[pod]
            if wish is not None:
                row.wish, row.wish_by = wish, by
            if stacks:
                row.stacks_asked = self._clock.now()
        self._tell(Wake(settings=True))
        return True

    async def save_shares(self, shares: Sequence[Share]) -> None:
        with self._lock:
            for each in shares:
                row = self._pods.get(each.pod)
                if row is None:
                    continue
                if each.share is None:
                    row.shares.pop(each.queue, None)
                else:
                    row.shares[each.queue] = each.share
        if shares:
            self._tell(Wake(settings=True))

    def _serving(self) -> dict[str, int]:
        """How many live pods that are not quiet serve each queue."""
        counts: dict[str, int] = {}
        for id, row in self._pods.items():
            if self._is_live(id) and not row.is_quiet:
                for name in row.card.queues:
                    counts[name] = counts.get(name, 0) + 1
        return counts

    async def due_tasks(self) -> Sequence[DueTask]:
        with self._lock:
            now = self._clock.now()
            dues: dict[tuple[str, str], list[float]] = {}
            for row in self._rows.values():
                if row.job.state in CLAIMABLE and row.job.run_at <= now:
                    dues.setdefault((row.job.queue, row.job.task), []).append(row.job.run_at)
            return [
                DueTask(queue, task, min(MOST_COUNTED, len(found)), now - min(found))
                for (queue, task), found in sorted(dues.items())
            ]
