"""Pace: when the next turn leaves, in a stream of small ones.

A turn costs a worker and its storage about the same whether it carries one job or ten. At a few jobs a second that is
the price of an answer without delay. At thousands a second, jobs arrive while the last turn is under way, the next one
leaves at once with the handful that came, and most of what worker and storage do is to take turns. So once turns follow
close upon one another, they leave `EVERY` so many seconds, and carry what has gathered.

Nobody waits who could be served better: a job alone leaves at once, because it takes `RUSH` turns in a row to make a
stream; where jobs are waiting for a slot, or many have ended, the turn leaves at once too.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

EVERY: Final = 0.004
RUSH: Final = 8
ENOUGH: Final = 32
"""So many that have ended are company enough."""


class Pace(Struct, frozen=True):
    began: float = -math.inf  # the last turn, by the pod's own clock
    rush: int = 0  # turns in a row that came within EVERY of the one before


def follow(pace: Pace, now: float, *, ended: int, is_pressed: bool) -> tuple[Pace, float]:
    """The pace with the next turn, and how long that turn waits. `ended` runs are to be written; `is_pressed`: there is
    more to run than there are slots, or the pod is leaving."""
    since = now - pace.began
    rush = pace.rush + 1 if since < EVERY else 0
    wait = EVERY - since if rush >= RUSH and ended < ENOUGH and not is_pressed else 0.0
    return Pace(now + wait, rush), wait
