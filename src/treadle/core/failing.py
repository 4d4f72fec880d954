"""Failing: which tasks, and which queues, fail more than they usually do.

Runs are judged, not jobs: a job that is tried again and again has not failed yet, and whoever waits for it should know.
Each task is judged by itself in each queue, since a hundred thousand good runs of another task say nothing about it. A
queue is judged by those of its tasks that have too few runs to be judged alone: all of them may fail for one reason.

Over how long: five minutes, if there were twenty runs, so that a busy task is noticed at once; else the last hour, if
there were five runs and half of them failed, so that a rare task is noticed at all.

What is usual is the median share of the last day's five minutes: a task that fails one run in five every day is no news
until it fails one in three. But no more than a half is ever usual, or what fails for a day would fall silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from . import streak
from .rollup import BAD
from .series import PairSeries, Series
from .streak import Step, Streak

SHORT: Final = 300.0
LONG: Final = 3_600.0
BAD_SHARE: Final = 0.05
BAD_SHARE_OF_FEW: Final = 0.5
MOST_USUAL: Final = 0.5
RUNS: Final = 20  # below, the share of five minutes says nothing
FEW_RUNS: Final = 5  # below, that of an hour neither
LEAST_STEPS: Final = 12  # of five minutes with runs in them: an hour's worth, or there is no usual share yet

Pair: TypeAlias = tuple[str, str]
"""Queue and task; a task of "" is the queue as a whole."""


class Runs(NamedTuple):
    """How many runs ended, and how many of them badly."""

    bad: int = 0
    ended: int = 0

    @property
    def share(self) -> float:
        return self.bad / self.ended if self.ended else 0.0


class Failing(Struct, frozen=True, kw_only=True):
    queue: str
    task: str  # "": several tasks of the queue
    runs: Runs
    over: float  # seconds
    usual: float
    muted: int = 0  # bad runs that came of causes which people know of, and are not in `runs`

    @property
    def pair(self) -> Pair:
        return self.queue, self.task


class Watched(Struct, frozen=True, kw_only=True):
    """What there is to judge by, pair by pair."""

    short: Mapping[Pair, Runs] = {}  # of the last five minutes
    long: Mapping[Pair, Runs] = {}  # of the last hour
    usual: Mapping[Pair, float] = {}
    muted: Mapping[Pair, float] = {}  # the share of bad runs that came of muted causes


def find(watched: Watched) -> tuple[Failing, ...]:
    """Those with the most bad runs first."""
    tasks = {
        pair: failing for pair in {**watched.long, **watched.short} if (failing := _judge(pair, watched)) is not None
    }
    queues = _queues(watched, tasks)
    found = [*tasks.values(), *queues]
    return tuple(sorted(found, key=lambda each: (-each.runs.bad, each.queue, each.task)))


def _judge(pair: Pair, watched: Watched) -> Failing | None:
    usual = watched.usual.get(pair, 0.0)
    for given, over, least, bound in (
        (watched.short, SHORT, RUNS, BAD_SHARE),
        (watched.long, LONG, FEW_RUNS, BAD_SHARE_OF_FEW),
    ):
        runs, muted = _without(given.get(pair, Runs()), watched.muted.get(pair, 0.0))
        if runs.ended >= least and runs.share > max(bound - 1e-9, limit(usual)):
            return Failing(queue=pair[0], task=pair[1], runs=runs, over=over, usual=usual, muted=muted)
    return None


def _without(runs: Runs, muted: float) -> tuple[Runs, int]:
    known = round(runs.bad * min(1.0, muted))
    return Runs(runs.bad - known, runs.ended - known), known


def limit(usual: float) -> float:
    """The share above which it is not as usual.

    >>> limit(0.0), limit(0.2)
    (0.05, 0.30000000000000004)
    """
    usual = min(usual, MOST_USUAL)
    return usual + max(BAD_SHARE, usual / 2)


def _queues(watched: Watched, told: Mapping[Pair, Failing]) -> list[Failing]:
    whole = Watched(
        short=_by_queue(watched.short, RUNS, told),
        long=_by_queue(watched.long, FEW_RUNS, told),
        usual=watched.usual,
        muted=watched.muted,
    )
    found = (_judge(pair, whole) for pair in {**whole.long, **whole.short})
    return [each for each in found if each is not None]


def _by_queue(given: Mapping[Pair, Runs], least: int, told: Mapping[Pair, Failing]) -> dict[Pair, Runs]:
    """The runs of each queue's tasks that had too few to be judged by themselves."""
    runs: dict[Pair, Runs] = {}
    for pair, each in given.items():
        if pair not in told and each.ended < least:
            before = runs.get((pair[0], ""), Runs())
            runs[pair[0], ""] = Runs(before.bad + each.bad, before.ended + each.ended)
    return runs


# ---------------------------------------------------------------------------------------------------------------------
# From roll-ups


def runs_of(outcomes: Mapping[str, int]) -> Runs:
    return Runs(sum(outcomes.get(each, 0) for each in BAD), sum(outcomes.values()))


def lately(pairs: Iterable[PairSeries], since: float) -> dict[Pair, Runs]:
    """How the runs ended of steps that reach beyond this instant."""
    found: dict[Pair, Runs] = {}
    for pair in pairs:
        each = [
            runs_of(point.outcomes) for point in pair.series.points if point.at.timestamp() + pair.series.step > since
        ]
        found[pair.queue, pair.task] = Runs(sum(one.bad for one in each), sum(one.ended for one in each))
    return found


def usual(series: Series) -> float:
    """The share of runs that usually end badly: the median of the steps that had any, the last of which has only begun.
    0 where there are too few of them."""
    shares = [runs.share for point in series.points[:-1] if (runs := runs_of(point.outcomes)).ended]
    return median(shares) if len(shares) >= LEAST_STEPS else 0.0


def since(hour: Iterable[Series], day: Series | None, usual: float) -> Streak | None:
    """Since when more runs fail than usual: by the minutes of the last hour (of one or more tasks), and by the day's
    five minutes where all of the hour was so."""
    bound = limit(usual)
    runs: dict[float, Runs] = {}
    step = 60.0
    for series in hour:
        step = series.step
        for point in series.points:
            at, more = point.at.timestamp(), runs_of(point.outcomes)
            before = runs.get(at, Runs())
            runs[at] = Runs(before.bad + more.bad, before.ended + more.ended)
    found = streak.find([_step(at, runs[at], bound) for at in sorted(runs)], step)
    if found is None or not found.at_least or day is None:
        return found
    longer = streak.find([_step(each.at.timestamp(), runs_of(each.outcomes), bound) for each in day.points], day.step)
    return found if longer is None or longer.since > found.since else longer


def _step(at: float, runs: Runs, bound: float) -> Step:
    return Step(at, runs.share > bound if runs.ended else None)
