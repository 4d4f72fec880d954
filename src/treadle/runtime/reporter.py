"""Reporter: keeps what the runs of a pod say of themselves, and writes it for all of them together, once a second.

Nothing of it exists for runs that say nothing: no row, no timer, no statement. The first word starts a small task,
which ends when all is written.

A run's newest progress stands for all before it. Lines are bounded as they come: those of one run by a ring, those of
all runs by `MOST_BYTES`. What the storage does not take now is kept, and merged with what comes meanwhile.

What comes after the finish
---------------------------
A pod sends finishes with its turns and reports on its own time, so the last word of a run may follow its finish. Then
it is written all the same, unless somebody has claimed the job again. If the run has succeeded, what was kept of it is
worth nothing any more and is removed, here, and never by the finish.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Container, Sequence
from typing import Final

from ..context.context import current_job
from ..context.logs import Write, capture
from ..core import progress as progressing
from ..core.errors import ClaimLost, StorageUnavailable
from ..core.job import Change, Job, State
from ..core.logline import LogLine, Ring, level_of
from ..core.progress import Progress, Report, Reported
from ..ports import Storage

log = logging.getLogger("treadle.reporter")

MOST_BYTES: Final = 8 * 1024 * 1024
MOST_AT_ONCE: Final = 1000  # lines in one write
PAUSES: Final = (0.1, 0.3, 1.0, 2.0, 5.0, 5.0, 5.0, 5.0, 5.0)  # while a checkpoint cannot be written

_Claim = tuple[str, str]  # job, token


class _Told:
    """What one run has said."""

    __slots__ = ("attempt", "id", "is_kept", "is_over", "last", "ring", "token", "unsent", "written_at")

    def __init__(self, job: Job) -> None:
        self.id = job.id
        self.token = job.token or ""
        self.attempt = job.attempt
        self.unsent: Progress | None = None
        self.last: Progress | None = None
        self.ring: Ring | None = None
        self.is_kept = False  # the storage has something of the job that a success makes worthless
        self.is_over = False  # it has succeeded
        self.written_at: float | None = None

    def report(self) -> Report | None:
        if self.is_over:
            return Report(id=self.id, token=self.token, attempt=self.attempt, over=True) if self.is_kept else None
        if self.unsent is None:
            return None
        return Report(id=self.id, token=self.token, attempt=self.attempt, progress=self.unsent)

    @property
    def is_written(self) -> bool:
        return self.report() is None and not self.ring


class Reporter:
    """Implements `reporting.Notebook`. `least` is the lowest level of lines that are kept; None keeps none."""

    def __init__(
        self,
        storage: Storage,
        *,
        least: int | None,
        now: Callable[[], float] = lambda: time.time(),
        in_hand: Container[_Claim] = (),
    ) -> None:
        self.least = 1_000_000 if least is None else least
        self.dropped = 0  # lines that found no room, here
        self._storage = storage
        self._now = now  # by the storage's clock, as far as the pod knows it
        self._in_hand = in_hand
        self._lock = threading.RLock()
        self._told: dict[_Claim, _Told] = {}
        self._bytes = 0  # of all rings
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._sending: asyncio.Task[None] | None = None
        self._is_called = False
        self._is_closed = False
        self._sent_at: float | None = None
        self._pods: set[str] = set()
        self._stop_capture: Callable[[], None] | None = None

    # From the pod ----------------------------------------------------------------------------------------------------

    def serve(self, pod: str) -> None:
        """Runs of this pod write here; so do the records of `logging` that are made in them."""
        self._pods.add(pod)
        if self._stop_capture is None and self.least <= logging.CRITICAL:
            self._stop_capture = capture(self._writer)

    def close(self) -> None:
        """What is said from now on, by a thread that was left behind, is not written."""
        self._is_closed = True
        if self._stop_capture is not None:
            self._stop_capture()
            self._stop_capture = None
        if self._sending is not None:
            self._sending.cancel()

    @property
    def is_used(self) -> bool:
        return bool(self._told)

    def ended(self, change: Change, job: Job) -> None:
        """The finish of a run was accepted. Asked only if `is_used`."""
        with self._lock:
            told = self._told.get((job.id, job.token or ""))
            if told is None:
                return
            if change.to is State.SUCCEEDED:
                told.is_over, told.unsent = True, None
            if told.is_written:
                del self._told[told.id, told.token]
            else:
                self._send_soon()

    # From runs, in any thread ----------------------------------------------------------------------------------------

    def progress(self, job: Job, progress: Progress) -> None:
        with self._lock:
            told = self._of(job)
            told.unsent = told.last = progress
            self._send_soon()

    def line(self, job: Job, level: int, text: str) -> None:
        if level < self.least:
            return
        with self._lock:
            if self._bytes >= MOST_BYTES:
                self.dropped += 1
                return
            told = self._of(job)
            ring = told.ring
            if ring is None:
                ring = told.ring = Ring(told.id, told.attempt)
            before = ring.bytes
            self.dropped += ring.add(self._now(), level_of(level), text)
            self._bytes += ring.bytes - before
            self._send_soon()

    def _writer(self) -> Write | None:
        """Where the records go that are made just here and now."""
        job = current_job.get()
        if job is None or job.pod not in self._pods:
            return None
        return lambda level, text: self.line(job, level, text)

    async def flush(self, job: Job) -> None:
        """Write what this run has said. Not more often than once a second."""
        with self._lock:
            told = self._told.get((job.id, job.token or ""))
        if told is not None and not told.is_written:
            await asyncio.sleep(progressing.wait_for(told.written_at, time.monotonic()))
            await self._send([told])

    async def last_progress(self, job: Job) -> Reported | None:
        told = self._told.get((job.id, job.token or ""))
        if told is not None and told.last is not None:
            return Reported(id=job.id, attempt=job.attempt, at=self._now(), progress=told.last)
        found = await self._storage.progress((job.id,))
        if found:
            self._note_kept(job)
        return found[0] if found else None

    async def save(self, job: Job, checkpoint: str) -> None:
        with self._lock:
            told = self._of(job)
            unsent, told.unsent = told.unsent, None
        report = Report(id=told.id, token=told.token, attempt=told.attempt, progress=unsent, checkpoint=checkpoint)
        try:
            taken = await self._insist(report)
        except BaseException:
            with self._lock:
                told.unsent = told.unsent or unsent
            raise
        if not taken:
            raise ClaimLost(f"job {job.id} is no longer this run's: its checkpoint is not kept, and it should stop")
        with self._lock:
            told.is_kept = True

    async def saved(self, job: Job) -> str | None:
        found = await self._storage.checkpoint(job.id)
        if found is None:
            return None
        self._note_kept(job)
        return found.value

    async def _insist(self, report: Report) -> bool:
        """A long job should not fail because its database is started anew."""
        for pause in PAUSES:
            try:
                return (await self._storage.report([report]))[0]
            except StorageUnavailable:
                await asyncio.sleep(pause)
        return (await self._storage.report([report]))[0]

    def _note_kept(self, job: Job) -> None:
        with self._lock:
            self._of(job).is_kept = True

    def _of(self, job: Job) -> _Told:
        claim = (job.id, job.token or "")
        told = self._told.get(claim)
        if told is None:
            told = self._told[claim] = _Told(job)
        return told

    # On its way ------------------------------------------------------------------------------------------------------

    def _send_soon(self) -> None:
        if self._is_called or self._is_closed:
            return
        self._is_called = True
        if threading.get_ident() == self._thread:
            self._begin()
        else:
            try:
                self._loop.call_soon_threadsafe(self._begin)
            except RuntimeError:
                pass  # the loop has closed: nobody is left to write it

    def _begin(self) -> None:
        if self._sending is None:
            # Of nobody: not of the run in whose context the first word was said.
            self._sending = self._loop.create_task(self._send_all(), name="reporter")

    async def _send_all(self) -> None:
        current_job.set(None)
        try:
            while True:
                with self._lock:
                    if not any(not told.is_written for told in self._told.values()):
                        self._forget_strangers()
                        self._is_called, self._sending = False, None
                        return
                await asyncio.sleep(progressing.wait_for(self._sent_at, time.monotonic()))
                try:
                    await self.send()
                except Exception as error:
                    log.debug("what runs have said is not written yet: %s", error)
        except asyncio.CancelledError:
            self._is_called, self._sending = False, None
            raise

    async def send(self) -> None:
        """Write all that was said."""
        self._sent_at = time.monotonic()
        with self._lock:
            unwritten = [told for told in self._told.values() if not told.is_written]
        if unwritten:
            await self._send(unwritten)

    async def _send(self, unwritten: list[_Told]) -> None:
        lines: list[tuple[_Told, list[LogLine]]] = []
        reports: list[tuple[_Told, Report]] = []
        now = time.monotonic()
        with self._lock:
            for told in unwritten:
                told.written_at = now
                if (report := told.report()) is not None:
                    reports.append((told, report))
                    told.unsent = None
                if told.ring:
                    self._bytes -= told.ring.bytes
                    lines.append((told, told.ring.take()))
        try:
            if reports:
                self._settle(reports, await self._storage.report([report for _, report in reports]))
                reports = []
            if lines:
                whole = [line for _, own in lines for line in own]
                for start in range(0, len(whole), MOST_AT_ONCE):  # or a claim would wait for it
                    await self._storage.record_logs(whole[start : start + MOST_AT_ONCE])
                lines = []
        finally:
            self._put_back(reports, lines)
            self._forget(unwritten)

    def _settle(self, reports: list[tuple[_Told, Report]], answers: Sequence[bool]) -> None:
        with self._lock:
            for (told, report), taken in zip(reports, answers, strict=True):
                # What is over is over; and who is not heard has nothing there that would be his to remove.
                told.is_kept = taken and not report.over

    def _put_back(self, reports: list[tuple[_Told, Report]], lines: list[tuple[_Told, list[LogLine]]]) -> None:
        with self._lock:
            for told, report in reports:
                if told.unsent is None and not told.is_over:
                    told.unsent = report.progress
            for told, own in lines:
                assert told.ring is not None
                before = told.ring.bytes
                self.dropped += told.ring.put_back(own)
                self._bytes += told.ring.bytes - before

    def _forget(self, written: list[_Told]) -> None:
        with self._lock:
            for told in written:
                if told.is_written and (told.id, told.token) not in self._in_hand:
                    self._told.pop((told.id, told.token), None)

    def _forget_strangers(self) -> None:
        """Runs that were lost never end here."""
        for claim in [claim for claim in self._told if claim not in self._in_hand]:
            del self._told[claim]
