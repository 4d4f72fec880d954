"""Balancer: shares the queues' cluster-wide totals out over the pods. Only differences are written.

Two leaders at once do no harm: both come to the same shares, or the later one's counts until the next pass. What is
known of shares that lie unused is kept here, and lost with the lead: then it takes a few seconds more to be seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...core import balance
from ...core.balance import Idle
from ...ports import Storage

log = logging.getLogger("treadle.balancer")


class Balancer:
    name = "balancer"
    jitter = 0.1

    def __init__(
        self,
        storage: Storage,
        leads: Callable[[], bool],
        *,
        every: float,
        limited: Callable[[], bool] = lambda: True,
    ) -> None:
        """`limited`: whether any queue has a total, as far as the pod has heard with its beats."""
        self.every = every
        self.written = 0
        self._storage = storage
        self._leads = leads
        self._limited = limited
        self._idle: dict[tuple[str, str], Idle] = {}

    async def run_once(self) -> None:
        limited = self._limited()
        pods = await self._storage.pods()
        if not limited and not any(pod.shares for pod in pods):
            self._idle = {}  # as in most clusters, most of the time: no queue has a total, and nothing is to be counted
            return
        queues = await self._storage.queues()
        self._idle = balance.watch(self._idle, queues, pods)
        changes = balance.changes(queues, pods, self._idle)
        # The reads took their time, and this process may have stood still: another pod may lead by now.
        if changes and self._leads():
            await self._storage.save_shares(changes)
            self.written += len(changes)
            log.debug("shares: %s", ", ".join(f"{each.queue} {each.pod} {each.share}" for each in changes))
