"""`app.lock` and `app.locks`: named locks of the whole cluster."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from ..client.client import Client, new_id
from ..context.context import current_job
from ..core import names
from ..core.audit import AuditLine
from ..core.duration import Duration, seconds, words
from ..core.errors import LockHeld, LockLost
from ..core.lock import Lock as LockRow

FIRST_PAUSE: Final = 0.02


LONGEST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """One named lock that is held.

    >>> with app.lock("books"):
    ...     [lock.name for lock in app.locks.list_sync()]
    ['books']
    """

    name: str
    owner: str
    fence: int
    left: float  # seconds


class _Holding:
    """What one holder has: the fence, and how often it has entered."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.depth = 0


# What the holders in this process have, for as long as one of their Lock objects lives: (client, lock, owner, holder).
# A holder is a run, by its job and token, or the Lock object, by its number.
_Key: TypeAlias = tuple[Client, str, str, tuple[str, str] | int]


_holdings: Final[WeakValueDictionary[_Key, _Holding]] = WeakValueDictionary()


class Lock:
    """A named lock of the whole cluster: `async with app.lock("import", ttl="5m") as lock:`, or `with`.

    It is held until the block ends, and for `ttl` at the longest: whoever needs it for longer calls `renew`. One that
    ran out may be somebody else's before its holder notices, so give `fence` to whatever the lock guards: it rises with
    every change of holder.

    A run of a task is one holder, whichever Lock objects it uses; outside a run each Lock object is one. The holder may
    enter again, and the lock is free when it has left as often. Another holder with the same `owner` takes the lock
    over, with a higher fence, and then the first one's exit frees nothing.

    >>> with app.lock("import", ttl="5m") as lock:
    ...     lock.fence > 0
    True
    """

    def __init__(self, client: Client, name: str, *, ttl: Duration, wait: Duration, owner: str | None) -> None:
        self.name = names.check_name("lock", name)
        self.ttl = seconds(ttl, "ttl")
        if not self.ttl:
            raise ValueError("ttl must be longer than zero")
        self._owner = None if owner is None else names.check_name("owner", owner)
        self._apart = _somebody()  # the owner outside of a run, if none is given
        self._wait = seconds(wait, "wait")
        self._client = client
        self._held: dict[_Key, _Holding] = {}

    @property
    def owner(self) -> str:
        """Who has it, for people, and for whoever takes over: what was given, else this run, else this object."""
        if self._owner is not None:
            return self._owner
        run = current_job.get()
        # The end of the token tells this run from the job's other ones.
        return self._apart if run is None or run.token is None else f"job:{run.id}:{run.token[-12:]}"

    @property
    def fence(self) -> int:
        """The number of this holding: higher than those of all holders before."""
        holding = self._mine()[1]
        if holding is None:
            raise LockLost(f"lock {self.name} is not held")
        return holding.fence

    async def acquire(self) -> None:
        """LockHeld if somebody else has it, and keeps it for longer than `wait`. LockLost if this holder had it, and it
        ran out or was taken over."""
        key = self._key()
        holding = _holdings.get(key)
        if holding is not None and holding.depth:
            await self._extend(key, holding)
        else:
            fence = await self._take(key[2])
            holding = _holdings.setdefault(key, _Holding(fence))
            holding.fence = max(fence, holding.fence)  # another part of this run may have been as fast
        self._held[key] = holding
        holding.depth += 1

    async def _take(self, owner: str) -> int:
        until = time.monotonic() + self._wait
        pause = FIRST_PAUSE
        while (lock := await self._seize(owner)).owner != owner:
            left = until - time.monotonic()
            if left <= 0:
                raise LockHeld(
                    f"lock {self.name} is held by {lock.owner}, for {words(round(max(0.0, lock.left), 3))} more at most"
                )
            await asyncio.sleep(min(pause, left, max(lock.left, FIRST_PAUSE)))
            pause = min(LONGEST_PAUSE, pause * 1.5)
        return lock.fence

    async def renew(self) -> None:
        """Another `ttl` from now. LockLost if it ran out or was taken over, and somebody else has had it since."""
        key, holding = self._mine()
        if holding is None:
            raise LockLost(f"lock {self.name} is not held")
        await self._extend(key, holding)

    async def _extend(self, key: _Key, holding: _Holding) -> None:
        owner = key[2]
        lock = await self._seize(owner, holding.fence)
        if (lock.owner, lock.fence) != (owner, holding.fence):
            self._forget(key, holding)
            lost = f"lock {self.name} ran out after {words(self.ttl)} or was taken over"
            raise LockLost(f"{lost}, and may have been somebody else's since")

    async def release(self) -> bool:
        """Leave it; it is free once its holder has left as often as entered. False if it is not held any more."""
        key, holding = self._mine()
        if holding is None:
            return False
        holding.depth -= 1
        if holding.depth:
            return True
        self._forget(key, holding)
        owner, fence = key[2], holding.fence
        return await self._client.ask(lambda storage: storage.free(self.name, owner, fence=fence))

    async def _seize(self, owner: str, fence: int | None = None) -> LockRow:
        return await self._client.ask(lambda storage: storage.seize(self.name, owner, self.ttl, fence=fence))

    def _key(self) -> _Key:
        run = current_job.get()
        holder = id(self) if run is None or run.token is None else (run.id, run.token)
        return self._client, self.name, self.owner, holder

    def _mine(self) -> tuple[_Key, _Holding | None]:
        """What this holder has by this object; in a thread of its own that does not know its run, what there is."""
        held = {key: each for key, each in self._held.items() if each.depth}
        key = self._key()
        if key not in held and len(held) == 1:
            (key,) = held
        return key, held.get(key)

    def _forget(self, key: _Key, holding: _Holding) -> None:
        holding.depth = 0
        self._held.pop(key, None)
        if _holdings.get(key) is holding:
            del _holdings[key]

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    def __enter__(self) -> Lock:
        return self._client.run_sync(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.run_sync(self.__aexit__(kind, error, trace))

    def acquire_sync(self) -> None:
        self._client.run_sync(self.acquire())

    def renew_sync(self) -> None:
        self._client.run_sync(self.renew())

    def release_sync(self) -> bool:
        return self._client.run_sync(self.release())


class Locks:
    """`app.locks`: who holds what, for operators.

    >>> with app.lock("ledger", owner="ann"):
    ...     [lock.owner for lock in app.locks.list_sync() if lock.name == "ledger"]
    ['ann']
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> Sequence[LockView]:
        """All locks that are held."""
        found = await self._client.ask(lambda storage: storage.locks())
        return [LockView(name=lock.name, owner=lock.owner, fence=lock.fence, left=lock.left) for lock in found]

    async def free(self, name: str, *, by: str | None = None) -> bool:
        """Take it away from whoever holds it; whether somebody did. Its holder is not told: its next `renew` fails."""
        line = AuditLine(id=new_id(), act="locks.free", subject=name, by=by)
        return await self._client.ask(lambda storage: storage.free(name, None, line=line))

    def list_sync(self) -> Sequence[LockView]:
        return self._client.run_sync(self.list())

    def free_sync(self, name: str, *, by: str | None = None) -> bool:
        return self._client.run_sync(self.free(name, by=by))


def _somebody() -> str:
    """An owner that is nobody else, and that tells people where to look for him."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64].lstrip(".-") or "host"
    return f"{host}:{os.getpid()}:{secrets.token_hex(6)}"
