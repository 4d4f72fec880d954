"""One act upon many jobs, its audit, and the failures that most of them are about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...core import lifecycle, operation
from ...core.audit import AuditLine, of_job
from ...core.event import of_change
from ...core.failure import SILENCE
from ...core.filter import parse
from ...core.job import Change, Job, QueueChange, State, cause_of
from ...core.operation import Chunk, Operation, new
from ...core.outcome import Snoozed, Succeeded, TimedOut
from ...ports import Applied, Query, Storage
from ..clock import FakeClock
from .builders import a_token, a_unique_job, an_error, an_id, failing, near, only, want
from .steps import Cases, a_live_pod, end, ids, look, put, start, take_one, write


async def begin(storage: Storage, act: str = "cancel", text: str = "queue:default", **fields: Any) -> Operation:
    saved = await storage.save_operation(new(an_id(), act, text, **fields), None)
    assert saved is not None
    return saved


async def chunk_of(storage: Storage, found: Operation, limit: int = 2) -> Chunk:
    page = await storage.find(Query(filter=operation.which(found), limit=limit, cursor=found.cursor))
    return operation.decide(found, page.jobs, page.next or page.resume)


def then(found: Operation, chunk: Chunk) -> Callable[[Sequence[Applied]], Operation]:
    return lambda answers: operation.after(found, chunk, answers)


async def work_off(storage: Storage, found: Operation, limit: int = 2) -> Operation:
    while found.state == "running":
        chunk = await chunk_of(storage, found, limit)
        done = await storage.advance(found, chunk.changes, then(found, chunk))
        assert done is not None
        found = done
    return found


def counts(found: Operation) -> tuple[int, int, int, int]:
    return found.matched, found.changed, found.too_late, found.refused


class Operations(Cases):
    async def test_an_operation_is_kept_as_it_was_saved(self, storage: Storage, clock: FakeClock) -> None:
        asked = new(an_id(), "revive", "state:failed", delay=3.0, priority=7, queue="bulk", by="ann", reason="why not")
        saved = await storage.save_operation(asked, None)
        assert saved is not None
        assert (saved.version, saved.state, saved.act, saved.filter) == (1, "running", "revive", "state:failed")
        assert (saved.delay, saved.priority, saved.queue, saved.by, saved.reason) == (3.0, 7, "bulk", "ann", "why not")
        assert near(saved.created_at, clock.now())
        assert near(saved.cutoff, clock.now())
        assert await storage.operation(saved.id) == saved
        assert await storage.operation(an_id()) is None
        assert await storage.save_operation(asked, None) == saved  # sent again
        assert len(await storage.audit()) == 1

    async def test_a_write_of_another_version_is_refused(self, storage: Storage) -> None:
        await put(storage)
        found = await begin(storage)
        stopping = operation.stop(found)
        assert stopping is not None
        stopped = await storage.save_operation(stopping, found.version)
        assert stopped is not None
        assert stopped.version == found.version + 1
        assert await storage.save_operation(found, found.version) is None
        assert await storage.save_operation(replace(found, id=an_id()), 1) is None
        chunk = await chunk_of(storage, found)
        assert await storage.advance(found, chunk.changes, then(found, chunk)) is None
        assert await ids(storage, "state:cancelled") == []
        assert await storage.operation(found.id) == stopped

    async def test_a_chunk_its_cursor_and_its_counts_are_one(self, storage: Storage) -> None:
        for _ in range(5):
            await put(storage)
        found = await begin(storage)
        chunk = await chunk_of(storage, found)
        once = await storage.advance(found, chunk.changes, then(found, chunk))
        assert once is not None
        assert (once.state, *counts(once)) == ("running", 2, 2, 0, 0)
        assert once.cursor is not None
        assert len(await ids(storage, "state:cancelled")) == 2
        # The answer was lost, and the chunk is sent again: nothing of it happens twice.
        assert await storage.advance(found, chunk.changes, then(found, chunk)) is None
        done = await work_off(storage, once)
        assert (done.state, *counts(done)) == ("finished", 5, 5, 0, 0)
        assert done.finished_at is not None

    async def test_each_job_is_seen_once_though_it_changes_its_state(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for _ in range(5):
            await end(storage, await start(storage, pod), failing(final=True))
        done = await work_off(storage, await begin(storage, "revive", "queue:default"))
        assert counts(done) == (5, 5, 0, 0)
        assert len(await ids(storage, "state:ready")) == 5

    async def test_younger_jobs_are_left_alone(self, storage: Storage, clock: FakeClock) -> None:
        old = await put(storage)
        found = await begin(storage)
        clock.advance(1)
        young = await put(storage)
        assert counts(await work_off(storage, found)) == (1, 1, 0, 0)
        assert await ids(storage, "state:cancelled") == [old]
        assert await ids(storage, "state:ready") == [young]

    async def test_a_held_key_is_a_refusal_and_harms_nobody(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for key in ("a", "b", "c"):
            job = await put(storage, a_unique_job(key))
            (running,) = (await storage.claim(pod, a_token(), [want()])).jobs
            assert running.id == job
            await end(storage, running, failing(final=True))
        await put(storage, a_unique_job("b", queue="elsewhere"))
        done = await work_off(storage, await begin(storage, "revive", "state:failed"), limit=10)
        assert (done.state, *counts(done)) == ("finished", 3, 2, 0, 1)

    async def test_who_was_faster_makes_it_too_late(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        slow, quick = await put(storage), await put(storage, queue="default", priority=9)
        found = await begin(storage, "move", queue="bulk")
        chunk = await chunk_of(storage, found, 10)
        (running,) = (await storage.claim(pod, a_token(), [want(limit=1)])).jobs
        assert running.id == quick
        done = await storage.advance(found, chunk.changes, then(found, chunk))
        assert done is not None
        assert counts(done) == (2, 1, 1, 0)
        assert (await look(storage, slow)).queue == "bulk"

    async def test_every_act_can_be_done_to_many(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        ended = (await end(storage, await start(storage, pod), Succeeded())).id
        ready = await put(storage, tags=("vip",))
        assert counts(await work_off(storage, await begin(storage, "priority", priority=5))) == (2, 1, 0, 1)
        assert counts(await work_off(storage, await begin(storage, "reschedule", delay=60.0))) == (2, 1, 0, 1)
        assert counts(await work_off(storage, await begin(storage, "move", queue="bulk"))) == (2, 1, 0, 1)
        job = await look(storage, ready)
        assert (job.priority, job.queue, job.state) == (5, "bulk", State.SCHEDULED)
        assert near(job.run_at, clock.now() + 60)
        assert counts(await work_off(storage, await begin(storage, "delete", "", everything=True))) == (2, 2, 0, 0)
        assert await ids(storage) == [ready]
        assert (await look(storage, ready)).state is State.CANCELLED  # what lives is cancelled instead
        assert list(await storage.get([ended])) == []
        assert counts(await work_off(storage, await begin(storage, "cancel", "queue:bulk"))) == (1, 0, 1, 0)

    async def test_operations_are_listed_those_under_way_first(self, storage: Storage, clock: FakeClock) -> None:
        made: list[Operation] = []
        for _ in range(3):
            made.append(await begin(storage))
            clock.advance(1)
        await work_off(storage, made[2])
        assert [each.id for each in await storage.operations()] == [made[1].id, made[0].id, made[2].id]
        assert [each.id for each in await storage.operations(1)] == [made[1].id]


class SeeingAll(Cases):
    async def test_a_look_that_was_cut_short_can_go_on(self, storage: Storage) -> None:
        """Nothing is cut short here; a cursor leads through all pages, and each job is on one of them."""
        made = [await put(storage, args=f'{{"n":{n % 2}}}') for n in range(7)]
        seen: list[str] = []
        cursor = None
        while True:
            page = await storage.find(Query(filter=parse("args.n:1"), limit=2, cursor=cursor))
            seen += [job.id for job in page.jobs]
            cursor = page.next or page.resume
            if cursor is None:
                break
        assert seen == [id for n, id in reversed(list(enumerate(made))) if n % 2]


class Audit(Cases):
    async def test_lines_are_added_once_and_read_from_the_newest(self, storage: Storage, clock: FakeClock) -> None:
        lines = [AuditLine(id=an_id(), act="queues.pause", subject=f"q{n}", by="ann", reason="r") for n in range(4)]
        for line in lines:
            await storage.note([line])
            clock.advance(1)
        await storage.note(lines)
        found = await storage.audit()
        assert [line.id for line in found] == [line.id for line in reversed(lines)]
        assert (found[0].act, found[0].subject, found[0].by, found[0].reason) == ("queues.pause", "q3", "ann", "r")
        assert near(found[0].at, clock.now() - 1)
        assert list(await storage.audit(2)) == list(found[:2])
        assert list(await storage.audit(2, before=found[1].id)) == list(found[2:])
        assert list(await storage.audit(before=an_id())) == []

    async def test_an_operation_is_told_at_its_beginning_and_at_its_end(self, storage: Storage) -> None:
        for _ in range(3):
            await put(storage)
        done = await work_off(storage, await begin(storage, by="ann"), limit=1)
        lines = await storage.audit()
        assert len(lines) == 2
        last, first = lines
        assert (first.operation, first.by, first.detail) == (done.id, "ann", "started")
        assert last.detail == "finished; matched 3, changed 3, too late 0, refused 0"

    async def test_an_edit_of_a_queue_and_its_line_are_one(self, storage: Storage) -> None:
        await put(storage)
        change = QueueChange(name="default", version=0, by="ann", audit=an_id(), max_workers=3)
        assert (await write(storage, change)).accepted
        late = QueueChange(name="default", version=0, by="ben", audit=an_id(), max_workers=4)
        assert not (await write(storage, late)).accepted
        again = await write(storage, change)  # its answer was lost
        assert (again.accepted, again.repeated) == (True, True)
        line = only(await storage.audit())
        assert (line.id, line.act, line.subject, line.by) == (change.audit, "queues.set", "default", "ann")

    async def test_an_act_upon_a_job_and_its_lines_are_one(self, storage: Storage, clock: FakeClock) -> None:
        """Written by themselves, the lines were lost with a crash between the act and them: an act without a name."""
        job = await end(storage, await start(storage), Succeeded())

        def signed(change: Change | None, by: str) -> Change:
            assert change is not None
            event = of_change(job, change, id=an_id(), by=by)
            return replace(change, event=event, line=of_job(job, change, "act", id=an_id(), by=by, reason="r"))

        revived, late = (signed(lifecycle.revive(job), by) for by in ("ann", "ben"))
        assert (await write(storage, revived)).accepted
        assert not (await write(storage, late)).accepted
        moved = signed(lifecycle.move(await look(storage, job.id), "mail"), "cid")
        for _ in range(2):  # the second time, the first answer was lost
            assert (await write(storage, moved)).accepted
        lines = {line.by: line for line in await storage.audit()}
        assert set(lines) == {"ann", "cid"}
        assert (lines["ann"].subject, lines["ann"].detail, lines["ann"].reason) == (job.id, "succeeded → ready", "r")
        assert near(lines["ann"].at, clock.now())
        told = await storage.timeline(job.id)
        assert {(each.what, each.by) for each in told} == {("revived", "ann"), ("moved", "cid")}
        assert len(told) == 2
        assert all(near(each.at or 0.0, clock.now()) for each in told)
        await write(storage, signed(lifecycle.cancel(await look(storage, job.id)), "dan"))
        gone = signed(lifecycle.remove(await look(storage, job.id)), "eve")
        assert (await write(storage, gone)).accepted
        assert {line.by: line.detail for line in await storage.audit()}["eve"] == "removed"
        assert not await storage.timeline(job.id)

    async def test_acts_upon_limits_and_locks_bring_their_lines(self, storage: Storage) -> None:
        lines = [AuditLine(id=an_id(), act=f"limits.act{n}", subject="slack", by="ann") for n in range(4)]
        await storage.save_limit("slack", 5, 2.0, 0)
        await storage.seize("import", "me", 60.0)
        for _ in range(2):  # the second time, the first answer was lost
            edited = await storage.save_limit("slack", 6, 2.0, 1, line=lines[0])
            assert edited is not None
            assert (edited.capacity, edited.version) == (6, 2)
        assert await storage.save_limit("slack", 7, 2.0, 1, line=lines[1]) is None
        for _ in range(2):
            assert await storage.remove_limit("slack", line=lines[2])
            assert await storage.free("import", None, line=lines[3])
        assert not await storage.remove_limit("slack", line=lines[1])
        assert {line.id for line in await storage.audit()} == {lines[n].id for n in (0, 2, 3)}


class DeadLetters(Cases):
    async def test_failures_are_grouped_by_cause(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)

        async def fail(**error: Any) -> str:
            clock.advance(1)
            return (await end(storage, await start(storage, pod), failing(final=True, **error))).id

        begun = clock.now()
        await fail(type="KeyError", place="app:send", message="first")
        last = await fail(type="KeyError", place="app:send", message="second")
        other = await fail(type="KeyError", place="app:other", message="elsewhere")
        clock.advance(1)
        slow = await end(
            storage, await start(storage, pod, max_attempts=1), TimedOut(an_error(kind="timeout", type="", place=""))
        )
        found = await storage.failures()
        assert (found.looked_at, found.capped) == (4, False)
        assert [(each.cause, each.count, each.sample) for each in found.groups] == [
            ("work:KeyError:app:send", 2, last),
            ("work:timeout:", 1, slow.id),
            ("work:KeyError:app:other", 1, other),
        ]
        most = found.groups[0]
        assert (most.task, most.type, most.place, most.message) == ("work", "KeyError", "app:send", "second")
        assert near(most.first_at, begun + 1)
        assert near(most.last_at, begun + 2)
        for each in found.groups:
            matching = await ids(storage, f'cause:"{each.cause}"')
            assert len(matching) == each.count
            assert each.sample in matching
        assert len(await ids(storage, "cause:work:KeyError:*")) == 3

    async def test_failures_of_one_queue_or_task(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await end(storage, await start(storage, pod, queue="mail"), failing(final=True))
        await end(storage, await start(storage, pod), failing(final=True))
        assert (await storage.failures(queue="mail")).looked_at == 1
        assert (await storage.failures(task="work")).looked_at == 2
        assert (await storage.failures(task="other")).groups == ()

    async def test_only_so_many_are_looked_at_the_newest(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for n in range(4):
            clock.advance(1)
            await end(storage, await start(storage, pod), failing(final=True, type=f"E{n}"))
        found = await storage.failures(most=2)
        assert (found.looked_at, found.capped) == (2, True)
        assert [each.type for each in found.groups] == ["E3", "E2"]
        assert len((await storage.failures(limit=1)).groups) == 1

    async def test_only_what_failed_or_waits_for_a_retry_has_a_cause(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        failed = await end(storage, await start(storage, pod), failing(final=True, type="KeyError"))
        retried = await end(storage, await start(storage, pod), failing(after=60.0, type="KeyError"))
        other = await end(storage, await start(storage, pod), failing(after=120.0, type="OSError"))
        assert retried.state is State.SCHEDULED
        same = f'cause:"{cause_of("work", retried.errors[-1])}"'
        assert sorted(await ids(storage, same)) == sorted([failed.id, retried.id])
        assert await ids(storage, f"state:failed {same}") == [failed.id]
        assert await ids(storage, f"is:retrying {same}") == [retried.id]
        assert await ids(storage, "is:retrying cause:work:*", next_first=True) == [retried.id, other.id]
        assert await ids(storage, f"is:retrying -{same}") == [other.id]
        assert len(await ids(storage, "cause:*")) == 3
        assert sum((await storage.count(parse(f"is:retrying {same}"))).values()) == 1
        assert await storage.count(parse(same)) == {State.FAILED: 1, State.SCHEDULED: 1}
        for state in ("running", "ready", "succeeded"):
            assert await ids(storage, f"state:{state} {same}") == []
            assert sum((await storage.count(parse(f"state:{state} {same}"))).values()) == 0
        revived = lifecycle.revive(failed)
        assert revived is not None
        await storage.apply([revived])
        clock.advance(60)  # the retry is due: it waits for a slot, as any job does
        assert await ids(storage, "cause:*") == [other.id]
        assert [each.type for each in (await storage.failures()).groups] == ["OSError"]

    async def test_jobs_that_wait_for_a_retry_are_counted_apart(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        begun = clock.now()
        retried: list[Job] = []
        for n in range(3):
            clock.advance(1)
            outcome = failing(after=600.0, type="KeyError", message=f"no {n}")
            retried.append(await end(storage, await start(storage, pod), outcome))
        clock.advance(1)
        given_up = await end(storage, await start(storage, pod), failing(final=True, type="KeyError", message="no"))
        await end(storage, await start(storage, pod, queue="mail"), failing(after=600.0, type="OSError"))
        await end(storage, await start(storage, pod), Snoozed(600.0))
        found = await storage.failures()
        assert (found.looked_at, found.capped, found.all_retries, found.known_since) == (5, False, True, None)
        most, other = found.groups
        assert (most.type, most.failed, most.retrying, most.count) == ("KeyError", 1, 3, 4)
        assert (most.sample, most.message, most.back_at) == (given_up.id, "no", None)
        assert near(most.first_at, begun + 1)
        assert near(most.last_at, begun + 4)
        assert (other.type, other.failed, other.retrying) == ("OSError", 0, 1)
        await write(storage, lifecycle.remove(given_up))
        (only_retrying,) = (await storage.failures(queue="default")).groups
        assert (only_retrying.failed, only_retrying.retrying) == (0, 3)
        assert (only_retrying.sample, only_retrying.message) == (retried[-1].id, "no 2")
        assert only((await storage.failures(queue="mail")).groups).type == "OSError"
        assert (await storage.failures(task="other")).groups == ()

    async def test_a_retry_fails_since_the_first_attempt_with_its_cause(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        begun = clock.now()
        job = await end(storage, await start(storage, pod), failing(after=60.0, type="KeyError"))
        other = await end(storage, await start(storage, pod), failing(after=60.0, type="KeyError"))
        clock.advance(60)
        pod = await a_live_pod(storage)
        for _ in range(2):
            taken = await take_one(storage, pod)
            await end(storage, taken, failing(after=600.0, type="KeyError" if taken.id == job.id else "OSError"))
        found = {each.type: each for each in (await storage.failures()).groups}
        assert near(found["KeyError"].first_at, begun)
        assert near(found["KeyError"].last_at, begun + 60)
        assert near(found["OSError"].first_at, begun + 60)
        assert (found["KeyError"].sample, found["OSError"].sample) == (job.id, other.id)

    async def test_of_many_retries_each_queue_and_task_has_its_part(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for n in range(9):
            queue = "loud" if n < 7 else f"quiet-{n}"
            await end(storage, await start(storage, pod, queue=queue), failing(after=60.0 + n, type=queue))
        found = await storage.failures(most=5)
        assert (found.looked_at, found.capped, found.all_retries) == (5, True, False)
        assert {each.type: each.retrying for each in found.groups} == {"loud": 3, "quiet-7": 1, "quiet-8": 1}

    async def test_a_cause_that_was_silent_for_a_day_is_back(self, storage: Storage, clock: FakeClock) -> None:
        await end(storage, await start(storage), failing(final=True))
        clock.advance(SILENCE - 3600)
        await end(storage, await start(storage), failing(final=True))
        assert only((await storage.failures()).groups).back_at is None
        clock.advance(SILENCE + 60)
        back = clock.now()
        await end(storage, await start(storage), failing(final=True))
        clock.advance(60)
        await end(storage, await start(storage), failing(after=60.0))
        found = only((await storage.failures()).groups)
        assert (found.failed, found.retrying) == (3, 1)
        assert near(found.back_at, back)

    async def test_what_fails_again_has_its_new_cause(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        failed = await end(storage, await start(storage, pod), failing(final=True, type="KeyError"))
        assert only((await storage.failures()).groups).type == "KeyError"
        await write(storage, lifecycle.revive(failed))
        clock.advance(1)
        await end(storage, await take_one(storage, pod), failing(final=True, type="OSError", message="no disk"))
        found = only((await storage.failures()).groups)
        assert (found.type, found.message, found.count, found.sample) == ("OSError", "no disk", 1, failed.id)
