"""Heart: keeps the pod's one lease alive, from a thread of its own.

Why a thread
------------
A task that blocks the event loop must not look like a dead pod: its neighbours' jobs would be rescued and run twice.
So the Heart has its own thread with its own small event loop, and speaks to the storage by itself; what it hears it
hands to the pod's loop, which obeys when it can.

One lease, one inequality
-------------------------
A pod holds one lease for all its runs. With `beat < lease / 2` one lost beat costs nothing. A pod that dies is found
by the scan, so its jobs are claimable after `lease + 1.5 · scan` at the latest (45 s with the defaults); where the
storage can prove death, at once.

The trust window
----------------
The storage decides when a lease ends. The pod's monotonic clock may only make it *more* careful: five seconds before
its lease would end without an answered beat, counted from when that beat was *sent*, it starts nothing more (its runs
go on) and asks without renewing. Asking, not renewing: in a one-way partition its beats arrive and the answers do not,
and a pod that cannot hear must not look alive for ever. When an answer comes and nobody has rescued anything, it goes
on under the old lease: expiry alone takes nothing away.

A beat hides a hung loop
------------------------
A thread that beats would keep a pod alive whose loop never comes back. So the Heart also watches the loop: it leaves a
pulse there and measures how long it lies. Late pulses are reported with the stack that blocks; beyond the hard limit
(the longest deadline among the runs plus grace) it stops renewing, and says so. `treadle worker` then leaves; a pod
that is embedded asks again once its loop is back, and goes on, or hears that it was lost and registers anew.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from ..config import Timing
from ..core import pod as pods
from ..core.pod import PodStats
from ..ports import Beaten, RunReport, Storage
from . import vitals

log = logging.getLogger("treadle.heart")

REPORT_EVERY = 60.0
DEAF_BEAT = 1.8  # where nobody tells of a queue's new settings: with jitter, still within two seconds
LONG_SLEEP = 5.0  # a thread that is late by more was stopped together with all the others


class Heart:
    def __init__(
        self,
        *,
        storage: Storage,
        timing: Timing,
        chance: random.Random,
        reports: Callable[[], Sequence[RunReport]],
        heard: Callable[[Beaten, Sequence[RunReport]], None],
        loop_limit: Callable[[], float],
        stuck: Callable[[float], None],
        stats: Callable[[], PodStats] | None = None,
        on_loop: Callable[[], str] = lambda: "",
    ) -> None:
        """`on_loop` says, from another thread, which task runs on the watched loop; empty: none of the users'."""
        self._storage = storage
        self._timing = timing
        self._chance = chance
        self._reports = reports
        self._heard = heard
        self._loop_limit = loop_limit
        self._stuck = stuck
        self._stats = stats
        self._stacks: str | None = None  # asked for, and not yet told
        self._stacks_asked: float | None = None  # what was answered last
        self._pod = ""
        self._answered = time.monotonic()  # when the last answered beat was sent
        self._silence = 0.0  # how long nobody had answered, before somebody did at …
        self._heard_again = self._answered
        self._trouble = False
        self._watched = asyncio.get_running_loop()
        self._watched_thread = threading.get_ident()
        self._pulse_sent: float | None = None
        self._looked = self._answered
        self._reported = -REPORT_EVERY
        self.lag = 0.0
        self._on_loop = on_loop
        self._worst = (0.0, "")
        self.skew = 0.0  # of this machine's clock, before the storage's
        self.is_stuck = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._poke: asyncio.Event | None = None
        self._soon = False
        self._stopping = False
        self._ended: Future[None] = Future()

    # For the pod -----------------------------------------------------------------------------------------------------

    def start(self, pod: str, registered: float | None = None) -> None:
        """Beat for a pod. If it has just registered, that is as good as a beat sent then."""
        self._pod = pod
        if registered is not None:
            self.serve(pod, registered)
        self._stopping = False
        self._ended = Future()
        self._thread = threading.Thread(target=self._live, name="treadle-heart", daemon=True)
        self._thread.start()

    def serve(self, pod: str, registered: float) -> None:
        self._pod = pod
        self._answered = registered

    def may_claim(self) -> bool:
        return not self.is_stuck and pods.may_claim(time.monotonic() - self._answered, self._timing.lease)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def beat_age(self) -> float:
        return time.monotonic() - self._answered

    @property
    def silence(self) -> float:
        """How long nobody has answered; for one beat after an answer, how long nobody had. After an outage the others
        need that beat to be heard."""
        is_recent = time.monotonic() - self._heard_again < self._timing.beat
        return max(self.beat_age, self._silence) if is_recent else self.beat_age

    def worst_lag(self) -> tuple[float, str]:
        """The longest lag since it was last asked, and the task that was on the loop then, as far as it was seen."""
        (lag, task), self._worst = self._worst, (0.0, "")
        return max(lag, self.lag), task

    def beat_soon(self) -> None:
        """Beat now rather than at the next interval: a cancel may be waiting."""
        self._soon = True  # kept, because its thread may only just be starting
        if self._loop is not None and self._poke is not None:
            try:
                self._loop.call_soon_threadsafe(self._poke.set)
            except RuntimeError:
                pass  # its loop has just ended

    def stop(self) -> None:
        self._stopping = True
        self.beat_soon()

    async def ended(self) -> None:
        """Wait until its thread uses the storage no more. A beat that is under way is answered first."""
        if self._thread is not None:
            await asyncio.shield(asyncio.wrap_future(self._ended))
            self._thread.join()  # it has nothing left to do but to vanish

    # In its own thread -----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        ended = self._ended
        try:
            asyncio.run(self._main())
        finally:
            ended.set_result(None)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poke = asyncio.Event()
        watch = asyncio.create_task(self._watch())
        try:
            while not self._stopping:
                await self._rest()
                if not self._stopping:
                    await self.beat()
        finally:
            watch.cancel()
            self._loop = None
            await self._storage.detach()

    async def _rest(self) -> None:
        assert self._poke is not None
        if self._soon:
            self._poke.set()
        every = self._timing.beat if self._storage.signals_work else min(self._timing.beat, DEAF_BEAT)
        try:
            async with asyncio.timeout(every * (0.9 + 0.2 * self._chance.random())):
                await self._poke.wait()
        except TimeoutError:
            pass
        self._poke.clear()
        self._soon = False

    async def beat(self) -> None:
        """One beat: renew (or, when deaf for too long, only ask), and pass on what was heard."""
        wall, sent, pod, renew = time.time(), time.monotonic(), self._pod, self.may_claim()
        runs, stacks = self._reports(), self._stacks
        stats = None if self._stats is None else self._stats()
        try:
            beaten = await self._storage.beat(pod, self._timing.lease, runs, renew=renew, stats=stats, stacks=stacks)
        except Exception as error:
            if not self._trouble:
                log.warning("a beat was not answered; the lease holds for %.0f s more: %s", self._lease_left(), error)
            self._trouble = True
            return
        self._note_skew(wall, time.monotonic() - sent, beaten.now)
        if self._trouble:
            log.warning("beats are answered again")
        self._trouble = False
        if not beaten.lost and not self.is_stuck:
            self._silence, self._heard_again = sent - self._answered, time.monotonic()
            self._answered = sent
            if not renew:
                self.beat_soon()  # it was only asked: the lease itself has yet to be renewed
        self._note_stacks(beaten, told=stacks is not None and renew)
        self._tell(pod, beaten, runs)

    def _note_skew(self, wall: float, took: float, now: float) -> None:
        """People want to know; nothing is decided by it. What the answer's way may account for is no skew."""
        apart = wall + took / 2 - now
        self.skew = apart if abs(apart) > took else 0.0

    def _note_stacks(self, beaten: Beaten, *, told: bool) -> None:
        """A dump is made here and now, not on the pod's loop, which may be the very thing that hangs."""
        if told:
            self._stacks = None
        if beaten.stacks_asked is not None and beaten.stacks_asked != self._stacks_asked:
            self._stacks_asked = beaten.stacks_asked
            self._stacks = vitals.stacks(self._watched, self._watched_thread)
            self.beat_soon()

    def _tell(self, pod: str, beaten: Beaten, runs: Sequence[RunReport]) -> None:
        def hear() -> None:
            # An answer for the pod's former id must not be taken for the new one's: it would be lost once more.
            # And one that comes after the stop must not be taken for that of the next start.
            if pod == self._pod and not self._stopping:
                self._heard(beaten, runs)

        try:
            self._watched.call_soon_threadsafe(hear)
        except RuntimeError:
            self._stopping = True  # the pod's loop is closed: there is nobody to beat for

    def _lease_left(self) -> float:
        return max(0.0, self._timing.lease - self.beat_age)

    # Watching the loop -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(self._every)

    def look(self) -> None:
        """Leave a pulse on the pod's loop, or see how long the last one has been lying there."""
        now = time.monotonic()
        was_away, self._looked = now - self._looked > LONG_SLEEP + self._every, now
        if self._pulse_sent is not None and was_away:
            self._pulse_sent = now  # this thread did not run either (SIGSTOP): it cannot tell how long the loop did not
        if self._pulse_sent is None:
            self._pulse_sent = now
            try:
                self._watched.call_soon_threadsafe(self._pulse, now)
            except RuntimeError:
                self._stopping = True
            return
        lag = now - self._pulse_sent
        if lag > self._worst[0]:
            self._worst = (lag, self._on_loop())
        if lag < self._timing.loop_lag:
            return
        self.lag = lag
        if now - self._reported >= REPORT_EVERY:
            self._reported = now
            log.warning("the event loop has been blocked for %.1f s by:\n%s", lag, self._blocking_stack())
        if lag > self._loop_limit() and not self.is_stuck:
            self.is_stuck = True
            log.critical("the event loop has been blocked for %.0f s: this pod gives up its lease", lag)
            self._stuck(lag)

    def _pulse(self, sent: float) -> None:
        self.lag = time.monotonic() - sent
        if self.lag > self._worst[0]:
            self._worst = (self.lag, self._worst[1])
        self._pulse_sent = None
        if self.is_stuck:
            self.is_stuck = False
            log.warning("the event loop is back after %.0f s: this pod asks whether it still has its lease", self.lag)
            self.beat_soon()

    @property
    def _every(self) -> float:
        return min(1.0, self._timing.loop_lag / 2)

    def _blocking_stack(self) -> str:
        return vitals.stack_of(self._watched_thread)
