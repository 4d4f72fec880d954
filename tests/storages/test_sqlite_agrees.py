"""Memory is the oracle: the same verbs, drawn by chance, go to both storages, and every answer is compared."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.core import lifecycle, operation
from treadle.core.backoff import Retry
from treadle.core.balance import Share
from treadle.core.filter import Filter, parse
from treadle.core.job import Change, Job, NewJob, OnConflict, QueueChange, State, UniqueClaim
from treadle.core.outcome import Interrupted, Snoozed, Stopped, Succeeded, Throttled, TimedOut
from treadle.core.pod import PodStats, Wish
from treadle.ports import Applied, Lane, Query, RunReport, Storage, Want
from treadle.runtime.services.operator import work
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.sqlite import SQLiteStorage, find
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import a_pod, a_token, an_error, an_id, failing

pytestmark = pytest.mark.anyio

QUEUES = ("mail", "media", "default")
TASKS = ("send", "scale", "clean", "odd")
FILTERS = (
    "",
    "state:ready",
    "state:scheduled",
    "state:running",
    "state:succeeded,failed",
    "-state:ready",
    "queue:mail",
    "queue:m*",
    "-queue:mail,media",
    "task:send -tag:vip",
    "tag:vip",
    "tag:v*",
    "-tag:*",
    "unique:*",
    "-unique:*",
    "pod:*",
    "is:due",
    "is:retrying",
    "is:stuck",
    "-is:stuck",
    "is:cancelling",
    "is:poison",
    "is:throttled",
    "priority:>0",
    "attempt:1..2",
    "created:<10s",
    "age:>20s",
    "due:<30s",
    "-due:<30s",
    "finished:<1m",
    "-finished:<1m",
    "wait:>5s",
    "run:<5s",
    "error:broke",
    "reason:because",
    "broke",
    "args.n:3",
    "args.n:>5 state:ready",
    "meta.tenant:a",
    "cause:send*",
    "-cause:*",
    'cause:"send:ValueError:"',
    "task:s* -state:failed,cancelled",
    "tag:vip,slow",
    "id:0*",
    "finished:>10s",
    "result.x:1",
    "-args.n:1..4",
)


class Program:
    """One random history, told to two storages."""

    def __init__(self, seed: int, one: Storage, other: Storage, clock: FakeClock) -> None:
        self.random = random.Random(seed)
        self.storages = (one, other)
        self.clock = clock
        self.aside = random.Random(seed)  # for what goes on beside the jobs
        self.asked: list[NewJob] = []
        self.seen: list[Job] = []  # as they once were: most Changes made of them are stale
        self.changes: list[Change] = []
        self.pods: list[str] = []
        self.tokens: list[tuple[str, str]] = []

    async def both(self, verb: Callable[[Storage], Awaitable[Any]], shape: Callable[[Any], Any] = lambda x: x) -> Any:
        first, second = [await verb(storage) for storage in self.storages]
        assert shape(second) == shape(first)
        return first

    async def step(self) -> None:
        steps = [
            *[self.insert] * 4,
            *[self.claim] * 4,
            *[self.apply] * 6,
            self.edit,
            self.register,
            self.beat,
            self.lead,
            self.leave,
            self.abandoned,
            self.recover,
            *[self.find] * 2,
            self.count,
            self.queues,
            self.failures,
            self.prune,
            self.operate,
            self.wait,
        ]
        await self.random.choice(steps)()

    def job(self) -> NewJob:
        draw = self.random
        rule = None
        if draw.random() < 0.4:
            period = draw.choice((None, None, 20.0))
            held = period is not None and draw.random() < 0.5
            on_conflict: OnConflict = draw.choice(("skip", "replace", "keep_last", "keep_last"))
            rule = UniqueClaim(draw.choice("abc"), period, held, on_conflict, draw.choice((None, None, 12.0)))
        return NewJob(
            id=an_id(),
            task=draw.choice(TASKS),
            queue=draw.choice(QUEUES),
            args=f'{{"n":{draw.randrange(8)}}}',
            format=draw.choice((1, 1, 2)),
            priority=draw.choice((0, 0, 0, 5, -5, 100)),
            delay=draw.choice((0.0, 0.0, 0.0, 5.0, 60.0)),
            run_at=draw.choice((None, None, None, self.clock.now() + draw.uniform(-10, 20))),
            max_attempts=draw.choice((None, 1, 3)),
            timeout=draw.choice((None, 0.0, 15.0)),
            pinned=draw.random() < 0.2,
            tags=draw.choice(((), (), ("vip",), ("vip", "slow"))),
            meta=draw.choice((None, '{"tenant":"a"}')),
            reason=draw.choice((None, "just because")),
            unique=rule,
        )

    async def insert(self) -> None:
        jobs = [self.job() for _ in range(self.random.randrange(1, 6))]
        if self.asked and self.random.random() < 0.3:
            jobs.append(self.random.choice(self.asked))
        self.asked += jobs
        await self.both(lambda storage: storage.insert(jobs))

    async def claim(self) -> None:
        draw = self.random
        if not self.pods or draw.random() < 0.1:
            await self.register()
        lanes = [Lane(frozenset(draw.sample(TASKS, draw.randrange(1, 4))), draw.randrange(4)) for _ in range(2)]
        wants = [
            Want(queue, draw.randrange(6), tuple(lanes[: draw.randrange(1, 3)]))
            for queue in draw.sample(QUEUES, draw.randrange(1, 4))
        ]
        pod, token = draw.choice(self.pods), a_token()
        self.tokens.append((pod, token))
        claimed = await self.both(lambda storage: storage.claim(pod, token, wants))
        self.seen += claimed.jobs

    async def apply(self) -> None:
        if not self.seen:
            return
        draw = self.random
        await self.refresh()
        changes = [change for _ in range(draw.randrange(1, 6)) if (change := self.change()) is not None]
        if self.changes and draw.random() < 0.3:
            changes.append(draw.choice(self.changes))
        self.changes += changes
        answers = await self.both(lambda storage: self.send(storage, changes))
        for change, answer in zip(changes, answers, strict=True):
            if answer.cancel_wanted:
                obeyed = lifecycle.obey_cancel(change)
                await self.both(lambda storage, obeyed=obeyed: self.send(storage, [obeyed]))
            elif answer.kept is not msgspec.UNSET and change.takes is None:
                taken = lifecycle.take_over(change, answer.kept)
                await self.both(lambda storage, taken=taken: self.send(storage, [taken]))

    async def send(self, storage: Storage, changes: Sequence[Change]) -> Sequence[Applied]:
        return await storage.apply(changes)

    def change(self) -> Change | None:
        draw = self.random
        job = draw.choice(self.seen[-30:])
        if job.behind is not None:  # no job yet: nobody runs it
            return lifecycle.cancel(job)
        follow_ups = tuple(self.job() for _ in range(draw.choice((0, 0, 0, 1))))
        outcomes = (
            Succeeded("1"),
            Succeeded('"done"', follow_ups=follow_ups),
            failing(),
            failing(final=True),
            TimedOut(an_error(kind="timeout")),
            Snoozed(5.0),
            Throttled(draw.choice((None, 30.0))),
            Stopped(an_error(kind="cancelled")),
            Interrupted(),
        )
        choices: list[Callable[[], Change | None]] = [
            *[lambda: lifecycle.finish(job, draw.choice(outcomes), Retry(), 0.5)] * 8,
            lambda: lifecycle.rescue(job, "a pod"),
            lambda: lifecycle.expire(job, 0.5),
            lambda: lifecycle.cancel(job),
            lambda: lifecycle.revive(job, queue=draw.choice((None, "mail", "moved"))),
            lambda: lifecycle.revive(job, delay=10.0, priority=7),
            lambda: lifecycle.reschedule(job, delay=draw.choice((0.0, 20.0))),
            lambda: lifecycle.move(job, draw.choice(("mail", "moved"))),
            lambda: lifecycle.set_priority(job, draw.choice((0, 5, 42))),
            lambda: lifecycle.remove(job) if draw.random() < 0.3 else None,
        ]
        return draw.choice(choices)()

    async def refresh(self) -> None:
        """Some are looked at anew, so that operators' Changes fit."""
        ids = [job.id for job in self.random.sample(self.seen, min(3, len(self.seen)))]
        ids.append(self.random.choice(self.asked).id)
        self.seen += await self.both(lambda storage: storage.get(ids))

    async def edit(self) -> None:
        draw = self.random
        fields: dict[str, Any] = draw.choice(
            (
                {"paused": True, "paused_by": "me"},
                {"paused": True, "paused_until": self.clock.now() + 10},
                {"paused": False},
                {"paused": False},
                {"max_workers": 3},
                {"cool_until": None},
                {"cool_until": self.clock.now() + 5},
            )
        )
        change = QueueChange(name=draw.choice((*QUEUES, "new")), version=draw.choice((None, None, 1)), **fields)
        await self.both(lambda storage: storage.apply([change]))

    async def register(self) -> None:
        card = a_pod(queues={self.random.choice(QUEUES): 3})
        self.pods.append(card.id)
        await self.both(lambda storage: storage.register(card))

    async def beat(self) -> None:
        if not self.pods:
            return
        pod = self.random.choice(self.pods)
        runs = [RunReport(job.id, job.token or "", "a slot") for job in self.seen[-5:]]
        renew = self.random.random() < 0.8
        stats = self.aside.choice((None, PodStats(), PodStats(running={"default": 2}, quiet=True)))
        stacks = self.aside.choice((None, None, "here"))
        await self.both(
            lambda storage: storage.beat(pod, 30.0, runs, renew=renew, stats=stats, stacks=stacks),
            lambda beaten: msgspec.structs.replace(beaten, queues=tuple(sorted(beaten.queues, key=lambda q: q.name))),
        )
        await self.order()

    async def order(self) -> None:
        draw, pod = self.aside, self.aside.choice(self.pods)
        wishes: tuple[Wish | None, ...] = (None, "serve", "quiet", "stop")
        wish, stacks = draw.choice(wishes), draw.random() < 0.5
        await self.both(lambda storage: storage.order_pod(pod, wish, stacks=stacks, by="ann"))
        shares = [Share(draw.choice(QUEUES), pod, draw.choice((None, 0, 3))) for pod in self.pods[-3:]]
        await self.both(lambda storage: storage.save_shares(shares))
        await self.both(lambda storage: storage.due_tasks(), list)

    async def lead(self) -> None:
        if self.pods:
            pod = self.random.choice(self.pods)
            await self.both(lambda storage: storage.lead(pod, 15.0))
            if self.random.random() < 0.2:
                await self.both(lambda storage: storage.step_down(pod))

    async def leave(self) -> None:
        if self.pods and self.random.random() < 0.5:
            pod = self.random.choice(self.pods)
            await self.both(lambda storage: storage.sign_off(pod))

    async def abandoned(self) -> None:
        found = await self.both(lambda storage: storage.abandoned(3, 5.0))
        changes = [lifecycle.rescue(each.job, each.label) for each in found if each.why != "deadline"]
        if self.random.random() < 0.5:
            await self.both(lambda storage: storage.apply(changes))

    async def recover(self) -> None:
        if self.tokens:
            pod, token = self.random.choice(self.tokens)
            await self.both(lambda storage: storage.recover(pod, token))

    def which(self) -> Filter:
        """Some of the filters together: whoever takes them apart must put them together again."""
        return parse(" ".join(self.random.sample(FILTERS, self.random.choice((1, 1, 2, 3)))))

    async def find(self) -> None:
        which = self.which()
        next_first = self.random.random() < 0.3
        limit = self.random.choice((1, 3, 50))
        cursors: list[str | None] = [None, None]
        for _ in range(4):
            pages = [
                await storage.find(Query(filter=which, limit=limit, cursor=cursor, next_first=next_first))
                for storage, cursor in zip(self.storages, cursors, strict=True)
            ]
            assert list(pages[1].jobs) == list(pages[0].jobs), str(which)
            cursors = [page.next for page in pages]
            assert (cursors[0] is None) == (cursors[1] is None), str(which)
            if cursors[0] is None:
                return

    async def count(self) -> None:
        which = self.which()
        cap = self.random.choice((2, 10_000))
        await self.both(lambda storage: storage.count(which, cap))

    async def failures(self) -> None:
        def shape(found: Any) -> Any:  # of several that ended in one instant, either may be the sample
            return [msgspec.structs.replace(each, sample="", message="") for each in found.groups], found.looked_at

        queue = self.random.choice((None, "mail"))
        await self.both(lambda storage: storage.failures(queue=queue), shape)

    async def operate(self) -> None:
        """One act upon many. Which of two with one unique key lives again is a matter of their order: not here."""
        draw = self.random
        act, options = draw.choice(
            (
                ("cancel", {}),
                ("revive", {}),
                ("revive", {"delay": 9.0, "priority": 3, "queue": "moved"}),
                ("reschedule", {"delay": draw.choice((0.0, 30.0))}),
                ("move", {"queue": draw.choice(QUEUES)}),
                ("priority", {"priority": draw.choice((-5, 50))}),
                ("delete", {}),
            )
        )
        text = draw.choice(FILTERS) + (" -unique:*" if act == "revive" else f" queue:{draw.choice(QUEUES)}")
        wanted = operation.new(an_id(), act, text, **options)
        told: list[Any] = []
        for storage in self.storages:
            found = await storage.save_operation(wanted, None)
            while found is not None and found.state == "running":
                found = await work(storage, found, 7)
            assert found is not None
            told.append((str(wanted), found.matched, found.changed, found.too_late, found.refused))
        assert told[0] == told[1]

    async def prune(self) -> None:
        """What was pruned here would be missed by nobody: the random history is short, and so are its ages."""
        state = self.random.choice((State.SUCCEEDED, State.FAILED, State.CANCELLED))
        change = QueueChange(
            name=self.random.choice(QUEUES), keep_failed=40.0, keep_succeeded=self.random.choice((20.0, 60.0, -1.0))
        )
        await self.both(lambda storage: storage.apply([change]))
        removed = [0, 0]
        for n, storage in enumerate(self.storages):
            mark, limit = None, self.random.choice((2, 1000))
            while True:
                pruned = await storage.prune(state, mark=mark, limit=limit)
                removed[n] += pruned.removed
                if (mark := pruned.mark) is None:
                    break
        assert removed[0] == removed[1]

    async def queues(self) -> None:
        await self.both(lambda storage: storage.queues(), list)
        await self.both(lambda storage: storage.pods(), lambda pods: sorted(pods, key=lambda pod: pod.card.id))

    async def wait(self) -> None:
        draw = self.random
        self.clock.advance(draw.choice((0.001, 1.0, 5.0, 11.0, 31.0)))
        if draw.random() < 0.1:
            self.clock.step_wall(draw.choice((-3.0, 3.0)))
        if draw.random() < 0.02:
            self.clock.reboot()

    async def end(self) -> None:
        """Everything there is, at last."""
        ids: Sequence[str] = [new.id for new in self.asked]
        await self.both(lambda storage: storage.get(ids), list)
        for text in FILTERS:
            which = parse(text)
            await self.both(lambda storage, which=which: storage.count(which))
        await self.queues()


@pytest.mark.parametrize("seed", range(10))
async def test_sqlite_answers_every_verb_as_memory_does(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # as if there were too many jobs to sort: lists are read stretch by stretch, or merged
        monkeypatch.setattr(find, "FEW", 3)
        monkeypatch.setattr(find, "STRETCH", 7)
        monkeypatch.setattr(find, "PATIENT_WITH", 14)
    clock = FakeClock()
    sqlite = SQLiteStorage(tmp_path / "jobs.db", clock=clock, synchronous="normal")
    await sqlite.open()
    program = Program(seed, MemoryStorage(clock), sqlite, clock)
    for _ in range(200):
        await program.step()
    await program.end()
    await sqlite.close()
