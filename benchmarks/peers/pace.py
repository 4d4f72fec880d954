"""When paced jobs are sent: evenly, but never in step with anybody's timer."""

from __future__ import annotations

import random
from collections.abc import Iterator


def waits(jobs: int, rate: float) -> Iterator[float]:
    chance = random.Random(7)
    for _ in range(jobs):
        yield (0.6 + 0.8 * chance.random()) / rate
