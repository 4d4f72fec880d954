"""Ablations: one safeguard switched off, and what the checker must then find.

A proof that nothing breaks is worth what it notices. Each ablation removes one safeguard from the storage or from the
pod, and the campaign must find it broken within 500 seeds, by one of the invariants that it names. A `harmless` one
must be found nowhere: two leaders at once cost work, and nothing else.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import msgspec

from ...client.client import new_id
from ...core import lifecycle
from ...core.firing import Fire, Fired
from ...core.job import Change, Job, NewJob, State
from ...core.limit import Take, Taken
from ...core.pod import Held
from ...ports import Applied, Beaten, Inserted, RunReport
from ...runtime.pod import Pod
from ...runtime.services.leader import Leader
from ...runtime.turner import Turner
from ...storages.memory import storage as memory
from ...storages.memory.storage import MemoryStorage
from .mill import Bustle, Mill, Mire, Torpor

_replace = msgspec.structs.replace


class NoFenceOnFinish(MemoryStorage):
    """Whoever says that a job ended is believed, whatever claim it speaks for."""

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is not None and change.token is not None and row.job.state is State.RUNNING:
            change = _replace(change, token=row.job.token)
        return super()._apply(change, now)


class NoFenceOnBeat(MemoryStorage):
    """A pod that was declared lost is told that all is well, and goes on with what was given to others."""

    async def beat(self, pod: str, lease: float, runs: Sequence[RunReport], **more: Any) -> Beaten:
        row = self._pods.get(pod)
        if row is not None:
            row.lost = False
        beaten = await super().beat(pod, lease, runs, **more)
        return _replace(beaten, held=(*beaten.held, *(Held(run.id, run.token) for run in runs)))


class EndsOverTheKept(MemoryStorage):
    """A run ends as if nothing were kept behind it."""

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is not None and change.takes is None and change.to is not None and change.to is not State.RUNNING:
            row.job = _replace(row.job, kept=None)
        return super()._apply(change, now)


class NoCharge(MemoryStorage):
    """A claim costs nothing, so a job that kills its pods costs nothing."""

    def _charge(self, *args: Any, **more: Any) -> Job:
        row = args[0]
        before = row.job.attempt
        job = super()._charge(*args, **more)
        row.job = _replace(row.job, attempt=before)
        return _replace(job, attempt=before)


class StaleChoice(MemoryStorage):
    """A claim acts on what it read a while ago: what was due then is taken, whatever it has become."""

    _chosen: list[Any]

    def _due_rows(self, queue: str, now: float) -> list[Any]:
        rows = super()._due_rows(queue, now)
        stale = [
            row for row in getattr(self, "_chosen", []) if row.job.queue == queue and row.job.state is State.RUNNING
        ]
        self._chosen = rows
        return rows + stale


class NewIdEveryTime(MemoryStorage):
    """An insert that is sent again is another job."""

    def _insert(self, new: NewJob, now: float) -> Inserted:
        if new.id in self._rows:
            taken = sum(id.startswith(new.id[:-4]) for id in self._rows)
            new = _replace(new, id=f"{new.id[:-4]}{taken:04x}", unique=None)
        return super()._insert(new, now)


class NoUniqueIndex(MemoryStorage):
    """Two callers who look at once both find the key free."""

    def _holder(self, key: str, now: float) -> str | None:
        return None


class FinishTwice(MemoryStorage):
    """A finish that is sent again after a lost answer is written again."""

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is not None and memory._is_finish(change) and row.finished_token == change.token:
            return self._write(row, row.job, change, now)
        return super()._apply(change, now)


class RescueWithoutLook(MemoryStorage):
    """A rescue is written without looking again whether the pod has spoken meanwhile."""

    def _apply(self, change: Change, now: float) -> Applied:
        return super()._apply(_replace(change, if_lapsed=False) if change.if_lapsed else change, now)


class ChargedRelease(MemoryStorage):
    """What a deploy gives back has cost an attempt."""

    def _apply(self, change: Change, now: float) -> Applied:
        return super()._apply(_replace(change, attempt=None) if change.why == "released" else change, now)


class FireAgain(MemoryStorage):
    """A fire that is sent again, or by a second leader, is another fire: nothing tells that it has been."""

    async def fire(self, wish: Fire) -> Fired:
        row = self._schedules.get(wish.name)
        if row is None or row.removed or wish.error is not None:
            return await super().fire(wish)
        jobs = tuple(self._insert(_replace(shot.job, id=new_id()), self._clock.now()).id for shot in wish.shots)
        progress = _replace(row.progress, cursor=max(row.progress.cursor, wish.to))
        self._schedules[wish.name] = _replace(row, progress=progress)
        return Fired(outcome="fired", jobs=jobs)


class NoRate(MemoryStorage):
    """Whoever asks for tokens gets them."""

    async def take(self, wishes: Sequence[Take]) -> Sequence[Taken]:
        given = await super().take(wishes)
        return [_replace(taken, got=wish.want, wait=0.0) for wish, taken in zip(wishes, given, strict=True)]


# What is switched off in the pod --------------------------------------------------------------------------------------


async def _recovers_nothing(self: Turner) -> None:
    self._unanswered.clear()


def _takes_up_nothing(self: Turner, token: str) -> None:
    pass


@contextlib.contextmanager
def _no_recovery() -> Generator[None]:
    with (
        mock.patch.object(Turner, "_recover", _recovers_nothing),
        mock.patch.object(Turner, "take_up", _takes_up_nothing),
    ):
        yield


@contextlib.contextmanager
def _no_poison_cap() -> Generator[None]:
    with mock.patch.object(lifecycle, "POISON_CRASHES", 10**9):
        yield


async def _rests() -> None:
    pass


@contextlib.contextmanager
def _no_beat_in_drain() -> Generator[None]:
    stop = Pod._stop

    async def silent(self: Pod, grace: float) -> None:
        self.heart.beat = _rests  # type: ignore[method-assign]  # a heart that stands still is started again
        await stop(self, grace + 60.0)

    with mock.patch.object(Pod, "_stop", silent):
        yield


@contextlib.contextmanager
def _everybody_leads() -> Generator[None]:
    with mock.patch.object(Leader, "leads", True):
        yield


@contextlib.contextmanager
def _nothing() -> Generator[None]:
    yield


@dataclass(frozen=True, slots=True)
class Ablation:
    """One safeguard off. `found` are the invariants of which at least one must break."""

    name: str
    found: frozenset[int]
    storage: type[MemoryStorage] = MemoryStorage
    off: Callable[[], contextlib.AbstractContextManager[None]] = _nothing
    pods_clocks: bool = False
    world: type[Mill] = Mill

    def run(self, seed: int) -> Sequence[str]:
        """The broken invariants that it is looked for by, in words; none: not found with this seed."""
        with self.off():
            world = self.world(seed, self.storage)
            if self.pods_clocks:
                world.clock.skewed = lambda: world.seam.caller.skew
            report = world.run()
        gc.collect()
        return [f"{each.number}: {each.text}" for each in report.broken if each.number in self.found]


ABLATIONS: Final = (
    Ablation("fence on finish", frozenset({3, 4, 6, 8}), NoFenceOnFinish),
    Ablation("fence on beat", frozenset({14}), NoFenceOnBeat, world=Torpor),
    Ablation("charge at claim", frozenset({9}), NoCharge),
    Ablation("state looked at again in the claim", frozenset({4}), StaleChoice),
    Ablation("repeatable enqueue", frozenset({2}), NewIdEveryTime),
    Ablation("unique index", frozenset({10}), NoUniqueIndex),
    Ablation("repeatable finish", frozenset({3, 4, 8}), FinishTwice),
    Ablation("lease looked at again in the rescue", frozenset({4, 5}), RescueWithoutLook, world=Mire),
    Ablation("release uncharged", frozenset({9}), ChargedRelease),
    Ablation("recovery of a claim whose answer was lost", frozenset({12}), off=_no_recovery),
    Ablation("poison cap", frozenset({9}), off=_no_poison_cap),
    Ablation("beat during the drain", frozenset({5}), off=_no_beat_in_drain),
    Ablation("the storage's clock", frozenset({5}), pods_clocks=True),
    # Two leaders are harmless because of it: so it is looked for where everybody leads.
    Ablation("one fire for each time", frozenset({10}), FireAgain, off=_everybody_leads),
    Ablation("cap of a rate", frozenset({15}), NoRate),
    Ablation("the kept request takes over", frozenset({1}), EndsOverTheKept, world=Bustle),
)
HARMLESS: Final = Ablation("leader's term", frozenset(range(14)), off=_everybody_leads)


def search(most: int = 500) -> Iterator[tuple[str, int | None, str]]:
    """For each ablation the first seed that notices, and what; None: none of so many."""
    for ablation in ABLATIONS:
        for seed in range(most):
            if told := ablation.run(seed):
                yield ablation.name, seed, told[0]
                break
        else:
            yield ablation.name, None, ""


def main() -> int:
    missed = 0
    for name, seed, told in search():
        sys.stdout.write(f"{name:44} {'NOT FOUND' if seed is None else f'seed {seed:4}'}  {told}\n")
        missed += seed is None
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
