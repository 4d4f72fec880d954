"""Balancer: shares the queues' cluster-wide totals out over the pods. Only differences are written.

Two leaders at once do no harm: both come to the same shares, or the later one's counts until the next pass. What is
known of shares that lie unused is kept here, and lost with the lead: then it takes a few seconds more to be seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ...core import balance
from ...core.balance import Idle
from ...core.queue import Queue, QueueStats
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
        settings: Callable[[], Mapping[str, Queue]],
    ) -> None:
        """`settings` are the queues as the pod has heard of them with its last beat."""
        self.every = every
        self.written = 0
        self._storage = storage
        self._leads = leads
        self._settings = settings
        self._idle: dict[tuple[str, str], Idle] = {}

    async def run_once(self) -> None:
        if not self._settings():
            return  # nothing was heard yet: not even that there are none
        pods = await self._storage.pods()
        is_limited = any(queue.max_workers is not None for queue in self._settings().values())
        if not is_limited and not any(pod.shares for pod in pods):
            self._idle = {}  # as in most clusters, most of the time: no queue has a total, and nothing is to be shared
            return
        queues = await self._look()
        self._idle = balance.watch(self._idle, queues, pods)
        changes = balance.changes(queues, pods, self._idle)
        # The reads took their time, and this process may have stood still: another pod may lead by now.
        if changes and self._leads():
            await self._storage.save_shares(changes)
            self.written += len(changes)
            log.debug("shares: %s", ", ".join(f"{each.queue} {each.pod} {each.share}" for each in changes))

    async def _look(self) -> list[QueueStats]:
        """The queues, and whether work waits in them. Not their counts: those cost the more the fuller a queue is, and
        here they would be paid for every few seconds."""
        waiting = {each.queue: each.count for each in await self._storage.due_tasks()}
        return [QueueStats(queue=queue, ready=waiting.get(queue.name, 0)) for queue in self._settings().values()]
