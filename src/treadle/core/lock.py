"""Lock: a name that one holder at a time may have, for a while, across the whole cluster."""

from __future__ import annotations

from msgspec import Struct


class Lock(Struct, frozen=True, kw_only=True, gc=False):
    """A named lock as a storage answers with it.

    `fence` is the holding's: it rises with every change of holder, and whoever guards something else by it refuses a
    number lower than one already seen. `owner` is empty if nobody has the lock. `left` is how many seconds it will
    last, by the storage's clock.
    """

    name: str
    owner: str
    fence: int
    left: float
