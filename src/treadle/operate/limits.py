"""`app.limits`: rate limits of the whole cluster, outside of tasks and for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..client.client import Client, new_id
from ..core import limit as limiting
from ..core import names
from ..core.audit import AuditLine
from ..core.duration import Duration, seconds, words
from ..core.errors import Conflict, RateLimited, UnknownLimit
from ..core.limit import Bucket
from ..core.settings import rate_words


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitView:
    """One rate limit as it stands now. `queue` is set for the limit that is a queue's own rate.

    >>> app.limits.set_sync("fax", "10/m").rate
    '10/m'
    """

    name: str
    rate: str
    burst: int
    tokens: float  # that could be taken now
    leased: int  # that somebody has taken within the last second, used or not
    queue: str | None
    version: int


class RateLimits:
    """`app.limits`: the whole cluster's. An edit holds from the next take on, everywhere, with no restart.

    >>> app.limits.set_sync("github", "100/m", burst=5).burst
    5
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def take(self, name: str, n: int = 1, *, wait: Duration = 0.0) -> None:
        """Take n tokens, all or none, from the budget that tasks take from, too. RateLimited if they are not there
        within `wait`; UnknownLimit; ValueError if there can never be so many."""
        missing = await self._client.take_tokens(name, n, seconds(wait, "wait"))
        if missing is not None:
            raise RateLimited(f"limit {name}: no {n} tokens for the next {words(round(missing, 3))}", missing)

    async def list(self) -> Sequence[LimitView]:
        """All limits by name: those that this app declares, those that others made, and the queues' own rates."""
        await self._client.broker.seed()
        return [_limit_view(bucket) for bucket in await self._client.ask(lambda storage: storage.limits())]

    async def get(self, name: str) -> LimitView:
        """One limit; UnknownLimit."""
        found = {each.name: each for each in await self.list()}
        if name not in found:
            near = names.suggest(name, found)
            raise UnknownLimit(f"there is no limit {name}" + (f'; did you mean "{near}"?' if near else ""))
        return found[name]

    async def set(
        self,
        name: str,
        rate: float | str,
        *,
        burst: int | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> LimitView:
        """Make a limit, or change it: so many tokens (`"100/m"`), at most `burst` at once (None: what a second gives,
        at least 1). Tokens are cut to the new burst. A `version` refuses the edit of something that somebody else has
        edited since it was read: Conflict."""
        limiting.check_scope(name)
        capacity, refill = limiting.check_rate(rate, burst)
        await self._seed(name)
        said = f"{rate_words(refill)}, burst {capacity}"
        line = AuditLine(id=new_id(), act="limits.set", subject=name, by=by, detail=said)
        saved = await self._client.ask(lambda storage: storage.save_limit(name, capacity, refill, version, line=line))
        if saved is None:
            raise Conflict(f"limit {name} has changed meanwhile: read it again")
        return _limit_view(saved)

    async def drain(self, name: str, *, by: str | None = None) -> None:
        """Empty it: the far side has refused. It refills by its rate. With `by`, the audit names who did so.
        UnknownLimit."""
        await self._client.broker.drain(name)
        await self._client.note("limits.drain", name, by)

    async def remove(self, name: str, *, by: str | None = None) -> bool:
        """Forget it; whether it was there. A limit that code declares comes back with its declared rate. A queue's own
        rate cannot be forgotten so: ValueError."""
        limiting.check_scope(name)
        line = AuditLine(id=new_id(), act="limits.remove", subject=name, by=by)
        return await self._client.ask(lambda storage: storage.remove_limit(name, line=line))

    async def _seed(self, name: str) -> None:
        # Version 1 is what the code declares, so that an edit is told from it.
        if name in self._client.broker.declared:
            await self._client.broker.seed()

    def take_sync(self, name: str, n: int = 1, *, wait: Duration = 0.0) -> None:
        self._client.run_sync(self.take(name, n, wait=wait))

    def list_sync(self) -> Sequence[LimitView]:
        return self._client.run_sync(self.list())

    def get_sync(self, name: str) -> LimitView:
        return self._client.run_sync(self.get(name))

    def set_sync(
        self,
        name: str,
        rate: float | str,
        *,
        burst: int | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> LimitView:
        return self._client.run_sync(self.set(name, rate, burst=burst, by=by, version=version))

    def drain_sync(self, name: str, *, by: str | None = None) -> None:
        self._client.run_sync(self.drain(name, by=by))

    def remove_sync(self, name: str, *, by: str | None = None) -> bool:
        return self._client.run_sync(self.remove(name, by=by))


def _limit_view(bucket: Bucket) -> LimitView:
    return LimitView(
        name=bucket.scope,
        rate=rate_words(bucket.refill),
        burst=bucket.capacity,
        tokens=round(max(0.0, bucket.tokens), 3),
        leased=bucket.leased,
        queue=limiting.queue_of(bucket.scope),
        version=bucket.version,
    )
