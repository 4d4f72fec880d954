"""Turner: the pod's rounds. Each turn writes all that has finished and takes all that is due, together.

The idea
--------
There is one turn under way at a time. While it is under way, runs end and wakes arrive; they fill the next turn, which
starts the moment this one is answered. So batches grow with load by themselves: a job alone is served at once, and a
thousand jobs share a commit. Only in a stream of small turns does the next one wait a little for company (`core.pace`).
`apply` and `claim` are sent side by side; a storage that can writes both in one commit.

Where a storage works beside the pod and many jobs end while a turn is under way (`Capabilities.overlap` says how many),
a second one leaves beside it: otherwise the storage would rest while a batch is run, and the pod while it is written.
(Unless other pods serve the same queues: then the storage does not rest.)
Each then takes half of the slots, and neither asks for places that the other has asked for. Below that number there is
never more than one: two small ones cost more statements and commits than one large one.

What starts a turn
------------------
A run that ended, a wake, the next known due time, or the poll. Hunger is kept queue by queue: a queue that gave
something is asked again with the next turn, one that had nothing rests until a wake or the poll. (One hunger for all
would let an idle queue's empty answer starve a full one beside it.) A claim asks for no more than can start at once,
so nothing that was claimed waits in memory.

Rates
-----
Where a queue has a rate, tokens are taken before the claim, which asks for no more jobs than there are tokens (see
`rates`). Other queues know nothing of it.

Jobs that were enqueued by name
-------------------------------
Whoever enqueued them did not know their task, so their rows lack its attempts and timeout, and a Rescuer could not heed
them. The pod knows the task: it writes what they lack under the claim's token, in one call for all such jobs of a
claim, and only then do their runs begin. A refusal means that the claim is lost: there is no run. Without an answer
they stay here, the next turn asks again, and nothing is claimed meanwhile. A claim without such jobs pays nothing.

When the storage is away
------------------------
The turn fails as a whole or in half. Changes that were not answered are kept, in order, and sent again with the next
turn: a finish that had been accepted is accepted again, by its token. A claim that was not answered may have been
carried out all the same: its token is remembered, and before anything new is claimed the storage is asked what that
token holds. Nothing new is claimed meanwhile, so what waits here is never more than the pod's slots. The pause between
turns grows from 1 s to 30 s, with jitter; a stop cuts it short, and so does an answered beat, because then the storage
is back. One line is logged when the trouble starts and one when it is over.

What a refused Change means
---------------------------
*Stale*: the claim is not ours any more; the Change is dropped and counted. *Cancel wanted*: somebody asked while the
run was ending; the core says what to write instead. *A request is kept behind it*: the same. *Its follow-ups are bad*,
or its words are: the finish is sent without them, because an effect has happened and must not be repeated for the sake
of a follow-up.

At shutdown
-----------
`stop_claiming` first; turns go on, to write what ends during the drain. A claim that was under way then may still bring
jobs: the pod gives them back. `flush` waits for it, and until nothing is left to write.
What cannot be written by then is rescued by others: the claim's lease ends with the pod.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from time import perf_counter
from typing import Any

import msgspec
from msgspec import UNSET

from ..core import blocker, demand, lifecycle
from ..core import pace as pacing
from ..core.backoff import Retry
from ..core.errors import StorageTimeout
from ..core.job import Change, ErrorEntry, Job
from ..core.outcome import Interrupted, Outcome, Raised
from ..core.payload import LONGEST_WARNING, NOT_KEPT
from ..ports import Applied, Claimed, Lane, Storage, Want
from ..tasks.follow_ups import FollowUps
from .meter import Meter
from .rates import Rates
from .roster import Roster
from .run import Run

log = logging.getLogger("treadle.turner")
job_log = logging.getLogger("treadle.jobs")

_warning_of = attrgetter("warning")

FIRST_PAUSE = 1.0
REFUSED_PAUSE = 30.0  # for a job whose row cannot hold what its task says
LONGEST_PAUSE = 30.0


class Finish(msgspec.Struct):
    """A Change on its way, and the run it speaks for (None: a claim that was given back unstarted). If a kept request
    takes over with it, `plain` is what it would be without."""

    change: Change
    run: Run | None
    plain: Change | None = None


class Turner:
    def __init__(
        self,
        *,
        storage: Storage,
        roster: Roster,
        start: Callable[[Sequence[Job]], None],
        is_heard: Callable[[], bool],
        accepted: Callable[[Change, Job], None],
        may_claim: Callable[[], bool],
        batch: int,
        poll: Callable[[], float],
        chance: random.Random,
        meter: Meter | None = None,
        rates: Rates | None = None,
        declared: FollowUps | None = None,
        resolve: Callable[[Job], Change | None] = lambda _: None,
    ) -> None:
        """`resolve` answers with what a job's row lacks that was enqueued without its task's code."""
        self.pod = ""  # set when the pod registers, and again when it registers anew
        self.counts: Counter[str] = Counter()
        self.idle = asyncio.Event()  # nothing under way, nothing to write, and the last claim was empty
        self.claiming = True
        self._storage = storage
        self._roster = roster
        self._start = start
        self._is_heard = is_heard
        self._accepted = accepted
        self._may_claim = may_claim
        self._overlap = storage.capabilities.overlap
        self._batch = batch
        self._poll = poll
        self._chance = chance
        self._meter = meter or Meter()
        self._declared = declared
        self._resolve = resolve
        self.rates = rates or Rates(storage, lambda: roster.settings)
        self._pending: list[Finish] = []
        self._unanswered: list[str] = []  # tokens of claims whose answer was lost
        # Claims whose rows lack something: they begin once that is written.
        self._unresolved: dict[tuple[str, str], tuple[Job, Change]] = {}
        self._in_flight: set[str] = set()  # tokens of claims under way
        self._asked: list[Want] = []  # what those ask for
        self._turns = 0  # under way
        self._relief: asyncio.Task[None] | None = None  # takes the second turns
        self._asking: asyncio.Task[None] | None = None  # who locks the storage, for the log
        self._given_back: set[tuple[str, str]] = set()  # (job id, token) of claims on their way back, never started
        self._hungry = set(roster.queues)  # queues that may have work for us
        self._plenty: set[str] = set()  # queues that gave all that they were last asked for
        self._nudged = asyncio.Event()
        self._written = asyncio.Event()  # nothing to write, and no claim under way that could bring something
        self._written.set()
        self._end_pause = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at: float | None = None  # by the loop's clock
        self._loop = asyncio.get_running_loop()
        self._pause = 0.0
        self._pace = pacing.Pace()
        self._tokens = 0
        self._salt = f"{chance.getrandbits(64):016x}"

    # What others tell the Turner -------------------------------------------------------------------------------------

    def wake(self, source: str = "pod") -> None:
        """There may be work in any queue. Called on the loop."""
        self._meter.counts["wakes", source] += 1
        self._hungry.update(self._roster.queues)
        self._nudged.set()

    def look_now(self) -> None:
        """Look for work at once, outside the pace of a stream; `idle` says when none is left. For a test, whose clock
        stands still meanwhile."""
        self._pace = pacing.Pace()
        self.idle.clear()
        self.wake()

    def finished(self, run: Run, outcome: Outcome) -> None:
        """A run has ended (or was given up): its Change rides with the next turn."""
        run.done = True
        if run.begun:
            run.seconds = perf_counter() - run.begun_at
        self._roster.free_slot(run)
        if run.reason == "lost" and not run.settled:
            self.counts["lost"] += 1
            self._roster.settle(run)
            self._nudged.set()
            return
        job = run.job
        if run.reason == "cancel":
            job = msgspec.structs.replace(job, cancel_wanted=True)
        overrides = self._roster.overrides
        live = overrides.get(job.queue) if overrides else None
        if run.meta is not None:
            job = msgspec.structs.replace(job, meta=run.meta)
        change = lifecycle.finish(job, outcome, run.retry or run.task.retry, self._chance.random(), live)
        if run.meta is not None and change.meta is UNSET:
            change = msgspec.structs.replace(change, meta=run.meta)
        # What a transaction of the task's own has committed is followed already.
        self._send_later(Finish(change if run.settled else self._followed(change, run), run))

    def _followed(self, change: Change, run: Run | None) -> Change:
        """With what the task declares for such an end."""
        if run is None or not run.task.followed or self._declared is None:
            return change
        return self._declared.added(change, run.job)

    def _taken_over(self, plain: Change, kept: str | None, run: Run | None) -> Change:
        change = lifecycle.take_over(plain, kept)
        return change if change.why == plain.why else self._followed(change, run)  # superseded: that is another end

    def _cannot_wait(self, run: Run) -> Change:
        """For a run that wants to wait for what nobody can answer: left waiting, it would wait for ever."""
        job = run.job
        message = "Wait needs a token that ctx.answer_token made in this run, and that is still open"
        error = ErrorEntry(
            attempt=job.attempt, kind="error", type="Wait", message=message, pod=job.pod, started_at=job.started_at
        )
        live = self._roster.override(job.queue)
        change = lifecycle.finish(job, Raised(error), run.retry or run.task.retry, self._chance.random(), live)
        if run.meta is not None:
            change = msgspec.structs.replace(change, meta=run.meta)
        return self._followed(change, run)

    def give_back(self, job: Job, delay: float = 0.0) -> None:
        """Return a claim unstarted, uncharged."""
        self._given_back.add((job.id, job.token or ""))
        self._send_later(Finish(lifecycle.finish(job, Interrupted(delay), Retry.none(), 0.0), None))

    def _send_later(self, finish: Finish) -> None:
        pending = self._pending
        pending.append(finish)
        if len(pending) == 1:  # what is true since then need not be said again
            self._written.clear()
            self.idle.clear()
            self._nudged.set()
        elif self._overlap and len(pending) % self._overlap == 0 and self._relief is None and self._is_second_worth():
            self._relief = self._loop.create_task(self._relieve())

    def stop_claiming(self) -> None:
        self.claiming = False
        self._end_pause.set()
        self._nudged.set()

    def storage_is_back(self) -> None:
        """Somebody else was answered: a pause after trouble need not be waited out."""
        self._end_pause.set()

    def forget(self) -> None:
        """The pod was declared lost: nothing that was claimed under its old id may be written any more. What a
        transaction of a task's own has committed is written already, and only told of."""
        told = [finish for finish in self._pending if finish.run is not None and finish.run.settled]
        stale = [finish for finish in self._pending if finish.run is None or not finish.run.settled]
        self.counts["stale"] += len(stale)
        self._roster.settle_all(finish.run for finish in stale if finish.run is not None)
        self._pending[:] = told
        self._unanswered.clear()
        self._unresolved.clear()
        self._given_back.clear()

    def take_up(self, token: str) -> None:
        """A beat showed claims that nobody here knows: their answer was lost. Ask for them, and run them."""
        self._unanswered.append(token)
        self._written.clear()
        self.wake()

    @property
    def unwritten(self) -> int:
        return len(self._pending)

    def knows(self, id: str, token: str) -> bool:
        """Whether this claim is no surprise: it has a run, or is still on its way here, or on its way back."""
        claim = (id, token)
        return (
            claim in self._roster.in_hand
            or claim in self._given_back
            or claim in self._unresolved
            or token in self._in_flight
            or token in self._unanswered
        )

    # Turns -----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Turn for ever. Cancel it only after `flush`: a turn that is cut short forgets what it was sending."""
        self._nudged.set()
        try:
            while True:
                await self._nudged.wait()
                self._nudged.clear()
                if self._pause:
                    await self._wait_out_trouble()
                elif (gather := self._gathering()) > 0:
                    await asyncio.sleep(gather)
                self._arm(await self._guarded_turn())
        finally:
            for task in (self._relief, self._asking):
                if task is not None:
                    task.cancel()
                    await asyncio.wait([task])

    def _gathering(self) -> float:
        """How long the next turn should wait for company."""
        is_pressed = bool(self._plenty) or not self.claiming
        self._pace, wait = pacing.follow(self._pace, self._loop.time(), ended=len(self._pending), is_pressed=is_pressed)
        return wait

    async def _relieve(self) -> None:
        """Second turns, as long as there is enough for them beside the first."""
        try:
            while self._is_second_worth():
                self._arm(await self._guarded_turn(second=True))
        finally:
            self._relief = None

    def _is_second_worth(self) -> bool:
        many = self._overlap is not None and len(self._pending) >= self._overlap
        alone = demand.is_alone(self._roster.serving)
        return many and self._turns == 1 and alone and not self._pause and not self._unanswered

    async def _guarded_turn(self, *, second: bool = False) -> float:
        """A turn. Whatever is wrong with it, there is a next one: a pod whose turns had ended would beat on, and keep
        the others from what it holds."""
        try:
            return await self.turn(second=second)
        except BaseException as error:
            if _is_our_end(error):
                raise
            log.exception("a turn ended in a way that was not foreseen")
            self.counts["errors"] += 1
            self._hungry.update(self._roster.queues)
            return self._poll()

    async def turn(self, *, second: bool = False) -> float:
        """One round. Answers with how long to rest if nothing nudges us before."""
        if self._unanswered and not second:  # the first one asks, and nothing is claimed meanwhile
            await self._recover()
        if self._unresolved and not second:
            self._note(await self._complete())
        wants = () if self._unanswered or self._unresolved else self._wants()
        is_rated = bool(wants) and self.rates.concern(wants)
        if is_rated:
            wants = () if second else await self._allowed(wants)
        finishes, self._pending = self._pending, []
        if not finishes and not wants:
            return self._rest(None)
        # Hunger ends before the question leaves, not when the answer comes: a wake in between must not be forgotten.
        # A queue that is asked only for some executors' tasks, because the others are full, stays hungry.
        self._hungry -= {want.queue for want in wants if len(want.lanes) == self._roster.kinds}
        begun = perf_counter()
        self._turns += 1
        self._asked += wants
        try:
            applied, claimed = await self._send(finishes, wants)
        finally:
            self._turns -= 1
            self._asked = [want for want in self._asked if not any(want is each for each in wants)]
        taken = len(claimed.jobs) if isinstance(claimed, Claimed) else 0
        self._meter.turned(perf_counter() - begun, len(finishes), taken)
        trouble = applied if isinstance(applied, BaseException) else None
        if isinstance(applied, BaseException):
            self._pending[:0] = finishes
        else:
            self._settle(finishes, applied)
        if is_rated:
            self.rates.claimed(wants, claimed.jobs if isinstance(claimed, Claimed) else None)
        if isinstance(claimed, Claimed):
            self._take(claimed, wants)
        elif claimed is not None:
            trouble = trouble or claimed
            self._hungry.update(want.queue for want in wants)
        if is_rated:
            await self.rates.hand_back()
        if self._unresolved:
            trouble = await self._complete() or trouble
        self._note(trouble)
        return self._rest(claimed if isinstance(claimed, Claimed) else None)

    async def flush(self) -> None:
        """Wait until everything that has ended is written, and no claim is under way. The caller sets the limit."""
        await self._written.wait()

    async def _send(
        self, finishes: list[Finish], wants: tuple[Want, ...]
    ) -> tuple[Sequence[Applied] | BaseException, Claimed | BaseException | None]:
        changes = [finish.change for finish in finishes]
        if not wants:
            return await _caught(self._storage.apply(changes)), None
        token = self._fresh_token()
        self._in_flight.add(token)
        self._written.clear()
        try:
            if not changes:
                claimed: Any = await _caught(self._storage.claim(self.pod, token, wants))
                return (), self._keep_token(token, claimed)
            applied, claimed = await asyncio.gather(
                self._storage.apply(changes), self._storage.claim(self.pod, token, wants), return_exceptions=True
            )
            return applied, self._keep_token(token, claimed)
        finally:
            self._in_flight.discard(token)

    def _keep_token(self, token: str, claimed: Claimed | BaseException) -> Claimed | BaseException:
        if isinstance(claimed, BaseException):
            self._unanswered.append(token)
        return claimed

    async def _recover(self) -> None:
        """Ask what the claims held whose answers were lost. They are settled before anything new is claimed."""
        for token in list(self._unanswered):
            jobs = await _caught(self._storage.recover(self.pod, token))
            if isinstance(jobs, BaseException):
                return
            if token not in self._unanswered:
                return  # the pod was declared lost meanwhile, and its claims are forgotten
            self._unanswered.remove(token)
            unknown = [job for job in jobs if not self.knows(job.id, token)]
            self.counts["recovered"] += len(unknown)
            self._begin(unknown)

    def _begin(self, jobs: Sequence[Job]) -> None:
        """Start what was claimed, but for the jobs whose rows lack something: `_complete` starts them."""
        lacking = [job for job in jobs if job.max_attempts is None or job.timeout is None]
        if lacking:
            found = {(job.id, job.token or ""): (job, change) for job in lacking if (change := self._resolve(job))}
            self._unresolved |= found
            jobs = [job for job in jobs if (job.id, job.token or "") not in found]
        self._start(jobs)

    async def _complete(self) -> BaseException | None:
        """Write what jobs lack that were enqueued by name, and start those whose claim still stands; or the trouble."""
        waiting = list(self._unresolved.items())
        answers = await _caught(self._storage.apply([change for _, (_, change) in waiting]))
        if isinstance(answers, BaseException):
            return answers
        complete: list[Job] = []
        for (claim, (job, change)), answer in zip(waiting, answers, strict=True):
            if self._unresolved.pop(claim, None) is None:
                continue  # the pod was declared lost meanwhile, or another turn has asked, too
            if answer.accepted:
                complete.append(lifecycle.resolved(job, change))
            elif answer.error is not None:
                log.error("job %s is given back: its attempts and timeout are not written: %s", job.id, answer.error)
                self.give_back(job, REFUSED_PAUSE)
            else:
                self.counts["stale"] += 1
                log.info("job %s is not begun: its claim is lost (it is %s now)", job.id, answer.state)
        self._start(complete)
        return None

    def _settle(self, finishes: list[Finish], answers: Sequence[Applied]) -> None:
        """What the storage said to each of them."""
        if self._is_heard() or not self._settle_alike(finishes, answers):
            self._settle_each(finishes, answers)

    def _settle_alike(self, finishes: list[Finish], answers: Sequence[Applied]) -> bool:
        """All at once, at a third of the price, if they are runs and all had the same plain answer: as most turns."""
        if not answers or not answers[0].accepted or answers[0].repeated:
            return False
        runs = [finish.run for finish in finishes if finish.run is not None]
        changes = [finish.change for finish in finishes]
        if len(runs) < len(finishes) or len(answers) != len(finishes) or set(map(id, answers)) != {id(answers[0])}:
            return False
        if any(map(_warning_of, changes)):
            return False  # there is something to be said of one of them
        reasons = [change.why for change in changes]
        self.counts.update(reasons)
        self._roster.settle_all(runs)
        self._meter.finished(changes, runs)
        if reasons.count("succeeded") < len(reasons):  # what did not end well is told, whoever listens
            for change, run in zip(changes, runs, strict=True):
                if change.why != "succeeded":
                    self._accepted(change, run.job)
        return True

    def _settle_each(self, finishes: list[Finish], answers: Sequence[Applied]) -> None:
        written: list[Change] = []
        ended: list[Run] = []
        for finish, answer in zip(finishes, answers, strict=True):
            change, run = finish.change, finish.run
            if run is None and not answer.cancel_wanted and answer.kept is UNSET:
                self._given_back.discard((change.id, change.token or ""))
            if answer.accepted:
                self.counts[change.why] += 1
                if run is not None:
                    self._roster.settle(run)
                    written.append(change)
                    ended.append(run)
                    if change.warning and change.why == "succeeded":
                        job_log.warning("%s %s succeeded: %s", run.job.task, change.id, change.warning)
                    if not answer.repeated or run.settled:
                        self._accepted(change, run.named())
            elif answer.cancel_wanted:
                self._pending.append(Finish(self._followed(lifecycle.obey_cancel(finish.plain or change), run), run))
            elif answer.kept is not UNSET:
                plain = finish.plain or change
                self._pending.append(Finish(self._taken_over(plain, answer.kept, run), run, plain))
            elif answer.error is not None and change.why == "waits" and run is not None and not change.follow_ups:
                self._pending.append(Finish(self._cannot_wait(run), run))
            elif answer.error is not None and (barer := _with_less(finish, answer.error)) is not None:
                left_out = "its follow-ups" if change.follow_ups else "what it said"
                log.error("job %s: %s is written without %s: %s", change.id, change.why, left_out, answer.error)
                self._pending.append(barer)
            else:
                self.counts["stale"] += 1
                log.info("job %s: %s came too late (it is %s now)", change.id, change.why, answer.state)
                if run is not None:
                    self._roster.settle(run)
        if ended:
            self._meter.finished(written, ended)

    def _take(self, claimed: Claimed, wants: Sequence[Want]) -> None:
        given = Counter([job.queue for job in claimed.jobs])
        self._hungry.update(given)
        for want in wants:
            (self._plenty.add if given[want.queue] >= want.limit else self._plenty.discard)(want.queue)
        if claimed.jobs:
            self.counts["claimed"] += len(claimed.jobs)
            self.idle.clear()
            self._begin(claimed.jobs)

    def _wants(self) -> tuple[Want, ...]:
        if not ((self._hungry or self._plenty) and self.claiming and self._may_claim()):
            return ()
        rooms = self._roster.rooms(self._hungry | self._plenty, self._asked)
        # What nobody may serve is not waited for: an operator's word comes with a beat, and the next poll asks again.
        unserved = {room.queue for room in rooms if room.most == 0 or not self._roster.kinds}
        self._hungry -= unserved
        self._plenty -= unserved
        alone = demand.is_alone(self._roster.serving)
        most = demand.most(self._batch, self._roster.slots, self._overlap, alone=alone)
        return tuple(
            Want(ask.queue, ask.limit, tuple(Lane(tasks, limit) for tasks, limit in ask.groups))
            for ask in demand.plan(rooms, most)
        )

    async def _allowed(self, wants: tuple[Want, ...]) -> tuple[Want, ...]:
        """What the queues' rates allow of it. A queue without a token is not waited for: it is known when there will
        be one, and then we are woken."""
        allowed = await self.rates.cut(wants)
        resting = self.rates.resting()
        self._hungry.difference_update(resting)
        self._plenty.difference_update(resting)
        # The pod may have been stopped, fenced or declared lost meanwhile.
        is_settled = not (self._unanswered or self._unresolved)
        return allowed if self.claiming and self._may_claim() and is_settled else ()

    def _fresh_token(self) -> str:
        # The random part makes tokens of other pods, of earlier lives and of restored databases all different.
        self._tokens += 1
        return f"{self._salt}{self._tokens:x}"

    # Rest and trouble ------------------------------------------------------------------------------------------------

    def _rest(self, claimed: Claimed | None) -> float:
        if self._pending:
            self._nudged.set()
        elif not (self._unanswered or self._unresolved or self._turns):
            self._written.set()
            if not self._hungry and not self._roster.in_hand:
                self.idle.set()
        if claimed is not None and claimed.more and self._wants():
            self._nudged.set()  # the batch was cut: there is room, and there is more
        due, token = self._next_due(claimed), self.rates.rest()
        return demand.rest(_sooner(due, token), self._poll(), self._chance.random())

    def _next_due(self, claimed: Claimed | None) -> float | None:
        """Seconds until the next job that we know of falls due. Remembered over turns that claimed nothing or asked
        only some queues; an instant too early costs one look."""
        now = self._loop.time()
        known = [] if self._due_at is None or self._due_at <= now else [self._due_at]
        if claimed is not None and claimed.next_due is not None:
            known.append(now + claimed.next_due)
        self._due_at = min(known, default=None)
        return None if self._due_at is None else self._due_at - now

    def _arm(self, rest: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(rest, self.wake, "timer")

    def _note(self, trouble: BaseException | None) -> None:
        if trouble is not None:
            if not self._pause:
                log.warning("storage trouble; what has ended is kept and sent again: %s", trouble)
                if isinstance(trouble, StorageTimeout) and self._storage.capabilities.shared:
                    self._asking = self._loop.create_task(self._name_blockers())
            self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE)
            self.counts["errors"] += 1
            self._nudged.set()
        elif self._pause:
            log.warning("the storage answers again")
            self._pause = 0.0
            self.wake()

    async def _name_blockers(self) -> None:
        """Beside the turns: the log names the session that holds the lock, where there is one."""
        found = await _caught(self._storage.blockers())
        if not isinstance(found, BaseException) and (said := blocker.sentence(found)):
            log.warning("the storage is locked: %s", said)

    async def _wait_out_trouble(self) -> None:
        # A pod that is leaving has no time for long pauses.
        pause = self._pause if self.claiming else min(self._pause, FIRST_PAUSE)
        self._end_pause.clear()
        try:
            async with asyncio.timeout(pause * (0.5 + 0.5 * self._chance.random())):
                await self._end_pause.wait()
        except TimeoutError:
            pass


def _with_less(finish: Finish, why: str) -> Finish | None:
    """The same finish with less in it, if there is anything that could be left out. What takes over with it goes last:
    only a request whose id another job has taken meanwhile can be at fault itself, and then it is there."""
    plain, takes = finish.plain or finish.change, finish.change.takes
    if (barer := _barer(plain, why)) != plain:
        return Finish(lifecycle.take_over(barer, takes), finish.run, barer)
    if takes is None or not finish.change.follow_ups:
        return None
    return Finish(msgspec.structs.replace(finish.change, follow_ups=()), finish.run, plain)


def _barer(change: Change, why: str) -> Change:
    """A Change that a storage cannot hold, with less in it: first without its follow-ups, then without its words. Not
    written at all, its claim would stay, be shown by the next beat as one that nobody knows, and be run again."""
    if change.follow_ups:
        return msgspec.structs.replace(change, follow_ups=())
    told = f"what it said could not be written: {why}"[:1024].encode("ascii", "backslashreplace").decode()
    if change.error is None:
        # Only a result can be at fault; a Change without one has nothing that could be left out.
        warning = f"{NOT_KEPT}{told}"[:LONGEST_WARNING]
        return msgspec.structs.replace(change, result=None, warning=warning) if change.result else change
    error = ErrorEntry(attempt=change.error.attempt, kind=change.error.kind, message=told)
    return change if change.error.message == told else msgspec.structs.replace(change, error=error, warning=UNSET)


def _sooner(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


async def _caught(call: Any) -> Any:
    """The answer, or the exception in its place; our own cancellation passes."""
    try:
        return await call
    except Exception as error:
        return error
    except asyncio.CancelledError as error:
        if _is_our_end(error):
            raise
        return error  # a driver has cancelled a future of its own: that is trouble, and not our end


def _is_our_end(error: BaseException) -> bool:
    """Whether somebody has asked this task to end. A `CancelledError` alone says nothing."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    return not isinstance(error, Exception)
