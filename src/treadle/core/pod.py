"""Pod: one running worker process, as the others see it, and what its lease allows it to do."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# So long before its lease ends, a pod whose beats go unanswered starts nothing more.
FENCE_MARGIN: Final = 5.0


class PodCard(Struct, frozen=True, kw_only=True):
    """What a pod says of itself when it registers. The id is new at every registration."""

    id: str
    label: str
    host: str
    pid: int
    version: str
    queues: dict[str, int]  # name → slots
    tasks: tuple[str, ...]
    lease: float


class Pod(Struct, frozen=True, kw_only=True):
    """A registered pod as the storage knows it."""

    card: PodCard
    started_at: float
    beat_at: float
    lease_left: float  # seconds, by the storage's clock; zero or less: lapsed
    running: int = 0
    leader: bool = False
    lost: bool = False

    @property
    def live(self) -> bool:
        return not self.lost and self.lease_left > 0


class Held(Struct, frozen=True):
    """A claim that the storage believes a pod to hold."""

    id: str
    token: str
    cancel_wanted: bool = False


def may_claim(since_beat: float, lease: float) -> bool:
    """Whether a pod may still start work, `since_beat` seconds (by its own monotonic clock) after the last answered
    beat *was sent*. Its own clock may only make it stop sooner; it never decides who owns a job."""
    margin = min(FENCE_MARGIN, lease / 6)  # short leases (tests, embedded use) keep the same proportion
    return since_beat < lease - margin
