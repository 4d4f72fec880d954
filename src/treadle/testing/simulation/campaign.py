"""Campaign: many seeds on all cores, with progress, and a red light for what never happened.

A campaign in which a kind of fault never fired proves nothing about it, however green it is: `REACHED` names what must
have happened, at least so often in a thousand seeds.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from .mill import Mill
from .world import Report

CHUNK: Final = 20
RECYCLED: Final = 5  # chunks, and then another process
TWICE: Final = 100  # every so many seeds one is run again, and must leave the same trace

# What a campaign must have seen, for each thousand seeds.
REACHED: Final = {
    "crash": 300,
    "pause": 300,
    "cut_off": 300,
    "graceful_stop": 300,
    "outages": 300,
    "lost_request": 1_000,
    "lost_answer_claim": 300,
    "lost_answer_apply": 100,
    "lost_answer_insert": 100,
    "lost_answer_beat": 100,
    "lost_wake": 1_000,
    "refused": 300,
    "slow": 1_000,
    "poisoned": 300,
    "told_lost": 30,
    "unknown_enqueue": 100,
    "applied_rescued": 1_000,
    "applied_released": 300,
    "applied_revived": 100,
    "applied_throttled": 300,
    "applied_snoozed": 300,
    "applied_cancel_asked": 100,
}


@dataclass(slots=True)
class Result:
    """What a campaign found."""

    seeds: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0
    failed: list[Report] = field(default_factory=list[Report])
    unlike: list[int] = field(default_factory=list[int])  # seeds whose second run left another trace
    counts: Counter[str] = field(default_factory=Counter[str])

    def missing(self) -> dict[str, int]:
        """What happened too rarely, and how often. Asked of campaigns that are large enough to tell."""
        return {
            name: self.counts[name] for name, least in REACHED.items() if self.counts[name] * 1000 < least * self.seeds
        }

    @property
    def passed(self) -> bool:
        return not self.failed and not self.unlike and (self.seeds < 200 or not self.missing())


def run_seed(seed: int) -> Report:
    report = Mill(seed).run()
    # Off during a run, so that it cannot disturb the order of things. What crashed hosts leave behind can never end,
    # and stays: it need not be looked at again after every seed, and goes with the process.
    gc.collect()
    gc.freeze()
    return report


def run_chunk(first: int, count: int) -> tuple[list[Report], list[int]]:
    reports = [run_seed(seed) for seed in range(first, first + count)]
    again = [report for report in reports if report.seed % TWICE == 0]
    return reports, [report.seed for report in again if run_seed(report.seed).digest != report.digest]


def campaign(
    start: int, seeds: int, workers: int | None = None, told: Callable[[Result], None] = lambda _: None
) -> Result:
    """Run so many seeds from `start` on. `told` hears of the progress."""
    result = Result()
    chunks = iter([(at, min(CHUNK, start + seeds - at)) for at in range(start, start + seeds, CHUNK)])
    with _pool(workers or os.cpu_count() or 1) as pool:
        pending: set[Future[tuple[list[Report], list[int]]]] = set()
        while True:
            while len(pending) < 2 * (workers or os.cpu_count() or 1) and (chunk := next(chunks, None)):
                pending.add(pool.submit(run_chunk, *chunk))
            if not pending:
                return result
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for each in done:
                _add(result, *each.result())
            told(result)


def _add(result: Result, reports: list[Report], unlike: list[int]) -> None:
    for report in reports:
        result.seeds += 1
        result.steps += report.steps
        result.virtual_seconds += report.virtual_seconds
        result.counts.update(report.counts)
        if not report.passed:
            result.failed.append(report)
    result.unlike += unlike


@contextlib.contextmanager
def _pool(workers: int) -> Generator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=RECYCLED) as pool:
        yield pool
