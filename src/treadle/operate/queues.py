"""`app.queues`: what can be asked of queues, and their live settings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from msgspec.structs import replace

from ..client.client import MOST_ROUNDS, Client, new_id
from ..context.context import instant
from ..core import catalog, names, retention, settings
from ..core.duration import Duration, seconds
from ..core.errors import Conflict
from ..core.job import QueueChange, State
from ..core.queue import Queue, QueueStats
from ..core.settings import QueueSettings
from ..core.view import QueueView, queue_view
from ..ports import Applied, Pruned


class Queues:
    """`app.queues`: what is in them, and their live settings.
    An edit takes effect in all workers, with no restart; a `version` refuses an edit of something
    that somebody else has edited since it was read.

    >>> app.queues.set_sync("mail", rate="10/s", by="ann").rate
    10.0
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> Sequence[QueueView]:
        """All queues by name, with what is in each."""
        stats = await self._client.ask(lambda storage: storage.queues())
        pods = await self._client.ask(lambda storage: storage.pods())
        entries = await self._client.ask(lambda storage: storage.catalog())
        known = {each.name: each for each in catalog.survey("queue", entries, pods, 0.0)}
        return [queue_view(each, [*pods], known.get(each.queue.name)) for each in stats]

    async def get(self, name: str) -> QueueView:
        """One queue. A queue nobody has used yet is there all the same, empty, with the built-in settings."""
        names.check_name("queue", name)
        known = {each.name: each for each in await self.list()}
        return known.get(name) or queue_view(QueueStats(queue=Queue(name=name)), [])

    async def pause(
        self,
        name: str,
        *,
        reason: str | None = None,
        until: datetime | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> QueueView:
        """Claim nothing more from it. What runs goes on, and what is enqueued waits."""
        if reason is not None:
            names.check_reason(reason)
        return await self._edit(
            name,
            QueueChange(
                name=name,
                version=version,
                by=by,
                paused=True,
                paused_by=by,
                pause_reason=reason,
                paused_until=None if until is None else instant(until, "until"),
            ),
        )

    async def resume(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        """End a pause: its jobs are claimed again."""
        return await self._edit(name, QueueChange(name=name, version=version, by=by, paused=False))

    async def set(
        self, name: str, *, by: str | None = None, version: int | None = None, **given: Unpack[QueueSettings]
    ) -> QueueView:
        """Live settings: `rate="100/m"`, `max_workers=10`, `keep_failed="forever"` …; None goes back to the built-in.

        What is left out stays. ValueError if one of them makes no sense; then nothing is written.
        """
        names.check_name("queue", name)
        wanted = settings.read(given)
        if not settings.is_partial(wanted):
            return await self._edit(name, replace(settings.change(name, wanted, version, None), by=by))
        # The parts of the retry override are one value of the row: what is not named must be read first.
        for _ in range(MOST_ROUNDS):
            row = await self._row(name)
            change = settings.change(name, wanted, row.version if version is None else version, row.retry)
            applied = await self._send(replace(change, by=by))
            if applied.accepted:
                return await self.get(name)
            if version is not None:
                raise Conflict(applied.error or f"queue {name} was changed by somebody else")
        raise Conflict(f"queue {name} changes faster than it can be edited; try again")

    async def scale(
        self, name: str, max_workers: int | None, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        """At most so many jobs at once in the whole cluster; 0 claims nothing, None sets no limit. Lowering it cancels
        no run: nothing is claimed until there are fewer."""
        return await self.set(name, by=by, version=version, max_workers=max_workers)

    async def _row(self, name: str) -> Queue:
        stats = await self._client.ask(lambda storage: storage.queues())
        return next((each.queue for each in stats if each.queue.name == name), Queue(name=name))

    async def warm(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        """End its cool-down at once."""
        return await self._edit(name, QueueChange(name=name, version=version, by=by, cool_until=None))

    async def cool(
        self, name: str, duration: Duration, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        """Claim nothing from it for so long, as after a Throttle."""
        until = seconds(duration, "duration") + await self._client.ask(lambda storage: storage.time())
        return await self._edit(name, QueueChange(name=name, version=version, by=by, cool_until=until))

    async def _edit(self, name: str, change: QueueChange) -> QueueView:
        names.check_name("queue", name)
        applied = await self._send(change)
        if not applied.accepted:
            raise Conflict(applied.error or f"queue {name} was changed by somebody else")
        return await self.get(name)

    async def _send(self, change: QueueChange) -> Applied:
        sent = replace(change, audit=new_id())
        (applied,) = await self._client.ask(lambda storage: storage.apply((sent,)))
        return applied

    async def prune(self, name: str) -> int:
        """Remove its ended jobs that are over their age, now; how many."""
        names.check_name("queue", name)
        return sum((await self._prune(name)).values())

    async def prune_all(self) -> dict[str, dict[str, int]]:
        """The same for every queue; how many, by queue and by the state that they had ended in."""
        found = await self._client.ask(lambda storage: storage.queues())
        return {name: await self._prune(name) for name in sorted(each.queue.name for each in found)}

    async def _prune(self, name: str) -> dict[str, int]:
        removed = dict.fromkeys((state.value for state in retention.STATES), 0)
        for state in retention.STATES:
            mark: str | None = None
            while True:
                pruned = await self._prune_chunk(name, state, mark)
                removed[state.value] += pruned.removed
                mark = pruned.mark
                if mark is None:
                    break
        return removed

    async def _prune_chunk(self, name: str, state: State, mark: str | None) -> Pruned:
        return await self._client.ask(lambda storage: storage.prune(state, queue=name, mark=mark))

    def prune_sync(self, name: str) -> int:
        return self._client.run_sync(self.prune(name))

    def prune_all_sync(self) -> dict[str, dict[str, int]]:
        return self._client.run_sync(self.prune_all())

    def list_sync(self) -> Sequence[QueueView]:
        return self._client.run_sync(self.list())

    def get_sync(self, name: str) -> QueueView:
        return self._client.run_sync(self.get(name))

    def pause_sync(
        self,
        name: str,
        *,
        reason: str | None = None,
        until: datetime | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> QueueView:
        return self._client.run_sync(self.pause(name, reason=reason, until=until, by=by, version=version))

    def resume_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        return self._client.run_sync(self.resume(name, by=by, version=version))

    def set_sync(
        self, name: str, *, by: str | None = None, version: int | None = None, **given: Unpack[QueueSettings]
    ) -> QueueView:
        return self._client.run_sync(self.set(name, by=by, version=version, **given))

    def scale_sync(
        self, name: str, max_workers: int | None, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        return self._client.run_sync(self.scale(name, max_workers, by=by, version=version))

    def cool_sync(
        self, name: str, duration: Duration, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        return self._client.run_sync(self.cool(name, duration, by=by, version=version))

    def warm_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        return self._client.run_sync(self.warm(name, by=by, version=version))
