"""Pruner: removes ended jobs that are over their age, and forgets whatever else nobody needs any more.

The leader's duty, once a minute unless the settings say otherwise (`prune`). Small chunks with a rest after each, so
that it never stands in the way of a claim; it ends when nothing is left or its time is up, and goes on from its marks
with the next pass. Safe to run twice at once: what somebody else has removed is not found.

Each kind of upkeep is one step, and one that fails keeps none of the others from being done. Another subject joins by
adding its own verb to `_steps`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ...core.job import State
from ...core.retention import CHUNK, STATES
from ...ports import Storage

log = logging.getLogger("treadle.pruner")

LONGEST_PASS: Final = 2.0
# While more is left than a pass can remove, it may take this part of the time.
DUTY: Final = 0.2


class Pruner:
    name = "pruner"
    jitter = 0.1

    def __init__(self, storage: Storage, *, every: float = 60.0, chunk: int = CHUNK) -> None:
        self.every = every
        self.removed: Counter[str] = Counter()  # what was removed since the start, by kind
        self.behind = False  # the last pass did not come to the end
        self._storage = storage
        self._chunk = chunk
        self._marks: dict[State, str] = {}
        self._errors: set[str] = set()

    async def run_once(self) -> None:
        begun = time.monotonic()
        allowed = max(LONGEST_PASS, DUTY * self.every) if self.behind else LONGEST_PASS
        self.behind = False
        before = self.removed.copy()
        trouble: list[Exception] = []
        for state in STATES:
            try:
                await self._prune(state, begun + allowed)
            except Exception as error:
                trouble.append(error)
        for name, step in self._steps().items():
            await self._step(name, step)
        if removed := self.removed - before:
            log.info("pruned: %s", ", ".join(f"{count} {what}" for what, count in sorted(removed.items())))
        if trouble:
            raise trouble[0]

    async def _prune(self, state: State, until: float) -> None:
        while True:
            began = time.monotonic()
            pruned = await self._storage.prune(state, mark=self._marks.pop(state, None), limit=self._chunk)
            self.removed[state.value] += pruned.removed
            if pruned.mark is None:
                return
            self._marks[state] = pruned.mark
            if time.monotonic() >= until:
                self.behind = True
                return
            # As long a rest as the chunk took: whoever claims and finishes has the storage in between.
            await asyncio.sleep(time.monotonic() - began)

    def _steps(self) -> dict[str, Callable[[], Awaitable[int | Mapping[str, int]]]]:
        return {"records": self._storage.sweep, "locks": self._storage.sweep_locks}

    async def _step(self, name: str, step: Callable[[], Awaitable[int | Mapping[str, int]]]) -> None:
        try:
            done = await step()
        except Exception as error:
            if name not in self._errors:
                log.warning("%s: %s: %s", name, type(error).__name__, error)
            self._errors.add(name)
            return
        self._errors.discard(name)
        self.removed.update({name: done} if isinstance(done, int) else done)
