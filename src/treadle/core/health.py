"""Health: what a pod that is asked "are you well?" answers. It is asked by a thread that may not wait for anybody, so
all it goes by is what the loops last saw."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

BEAT_AGE: Final = 25.0 / 30.0  # of the lease
STORAGE_AGE: Final = 15.0


class Signs(Struct, frozen=True, kw_only=True):
    """What can be seen of a pod from outside its loop."""

    started: bool = True
    stopping: bool = False
    loop_alive: bool = True  # it may be blocked; dead is one that will not come back
    heart_alive: bool = True
    turner_alive: bool = True
    services_alive: bool = True
    beat_age: float = 0.0
    storage_age: float = 0.0  # since a storage call was last answered
    lease: float = 30.0
    beat: float = 10.0


def is_alive(signs: Signs) -> bool:
    """Whether to leave the process alone. One that drains, or cannot reach its storage, is alive: a restart would not
    help it."""
    return not signs.started or (signs.loop_alive and (signs.heart_alive or signs.stopping))


def not_ready(signs: Signs) -> list[str]:
    """Why this pod cannot do its work now, in words; empty if it can."""
    if not signs.started:
        return ["it is starting"]
    oldest_beat = signs.lease * BEAT_AGE
    oldest_answer = max(STORAGE_AGE, 1.5 * signs.beat)  # a pod that drains hears of its storage with each beat only
    reasons = {
        "it is shutting down": signs.stopping,
        "its event loop is dead": not signs.loop_alive,
        "its heart has stopped": not signs.heart_alive,
        "its turns have ended": not signs.turner_alive,
        "one of its services has ended": not signs.services_alive,
        f"its last answered beat is {signs.beat_age:.0f} s old": signs.beat_age > oldest_beat,
        f"the storage has not answered for {signs.storage_age:.0f} s": signs.storage_age > oldest_answer,
    }
    return [told for told, holds in reasons.items() if holds]
