"""Lock: a name that one owner at a time may hold, for a while, across the whole cluster."""

from __future__ import annotations

from msgspec import Struct


class Lock(Struct, frozen=True, kw_only=True, gc=False):
    """A named lock as a storage answers with it.

    `fence` rises with every change of owner: whoever guards something else by it refuses a number lower than one that
    he has seen. `left` is how many seconds it will last, by the storage's clock.
    """

    name: str
    owner: str
    fence: int
    left: float
