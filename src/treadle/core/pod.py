"""Pod: one running worker process, as the others see it, and what its lease allows it to do."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

# So long before its lease ends, a pod whose beats go unanswered starts nothing more.
FENCE_MARGIN: Final = 5.0


# What an operator wants of a pod: to serve as always, to claim nothing more, or to end as by SIGTERM.
Wish = Literal["serve", "quiet", "stop"]


class Descriptor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What people say of a task or a queue in code, for whoever is called at night."""

    description: str = ""
    owner: str = ""
    docs: str = ""  # a link
    tags: tuple[str, ...] = ()
    queue: str = ""  # of a task: where its jobs go, if the call names no other
    executor: str = ""  # of a task: what runs it


class PodStats(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a pod fares, as it says so with each beat."""

    running: dict[str, int] = {}  # queue → runs under way
    quiet: bool = False  # it claims nothing: asked to, fenced, or stopping
    cpu_seconds: float = 0.0  # of the process, since its start
    rss_bytes: int = 0
    loop_lag: float = 0.0  # the longest since the last beat
    slow_task: str = ""  # that was on the loop meanwhile
    clock_skew: float = 0.0  # of its machine's clock, before the storage's
    threads: int = 0
    stuck_threads: int = 0  # threads that a run was given up in
    abandoned: int = 0  # runs that were given up and go on: in those threads, or on the loop
    children: int = 0  # processes that run its calls
    troubles: dict[str, str] = {}  # executor → why it can run nothing now


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
    slots: int | None = None  # over all its queues; None: each queue has its own, and no more is said
    can_lead: bool = True
    schedules: tuple[str, ...] = ()  # that its code declares
    about: dict[str, Descriptor] = {}  # "task NAME" or "queue NAME" → what its code says of it
    worker_version: str = ""  # of the user's code, as the setting says; `version` is Treadle's


class Pod(Struct, frozen=True, kw_only=True):
    """A registered pod as the storage knows it."""

    card: PodCard
    started_at: float
    beat_at: float
    lease_left: float  # seconds, by the storage's clock; zero or less: lapsed
    running: int = 0
    leader: bool = False
    lost: bool = False
    stats: PodStats | None = None  # with its last beat
    wish: Wish = "serve"
    wish_by: str | None = None  # who asked for it
    stacks: str | None = None  # the last dump that was asked for
    stacks_at: float | None = None
    stacks_asked: float | None = None
    shares: dict[str, int] = {}  # queue → its part of the queue's max_workers, where there is one

    @property
    def live(self) -> bool:
        return not self.lost and self.lease_left > 0

    @property
    def state(self) -> Literal["live", "quiet", "stopping", "lapsed", "lost"]:
        """In one word, for people."""
        if not self.live:
            return "lost" if self.lost else "lapsed"
        return "stopping" if self.wish == "stop" else "quiet" if self.is_quiet else "live"

    @property
    def is_quiet(self) -> bool:
        """Whether it claims nothing, because it was asked to or because it says so."""
        return self.wish != "serve" or (self.stats is not None and self.stats.quiet)


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
