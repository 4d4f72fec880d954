"""Whole rows, out of one storage and into another: nothing lost, nothing doubled, nothing altered."""

from __future__ import annotations

from typing import Any

import msgspec

from ...core import lifecycle
from ...core.job import Job
from ...core.outcome import Snoozed, Succeeded
from ...core.record import Record, differing
from ...ports import Loaded, Storage
from ..clock import FakeClock
from .builders import a_job, a_unique_job, an_id, failing, near, only, want
from .steps import Cases, a_live_pod, edit, end, ids, look, put, queue, start, take, write

SAME = Loaded("same")
WRITTEN = Loaded("written")


async def everything(storage: Storage, kind: str, limit: int = 2) -> list[Record]:
    """All records of a kind, by small pages."""
    found: list[Record] = []
    cursor = None
    while True:
        page = await storage.dump(kind, cursor, limit)
        assert len(page.records) <= limit
        found += page.records
        cursor = page.next
        if cursor is None:
            return found


def a_record(**fields: Any) -> Record:
    job: Record = {
        "id": an_id(), "seq": 1, "task": "work", "queue": "default", "state": "ready", "args": '{"n":1}', "format": 1,
        "priority": 0, "run_at": 900.0, "created_at": 900.0, "attempt": 0, "max_attempts": None, "timeout": None,
        "pinned": False, "tags": [], "meta": None, "reason": None, "unique_key": None, "pod": None, "slot": None,
        "token": None, "started_at": None, "finished_token": None, "crashes": 0, "snoozes": 0, "throttles": 0,
        "warning": None, "error_count": 0, "errors": [],
    }  # fmt: skip
    return {**job, **fields}


def an_ended_record(**fields: Any) -> Record:
    return a_record(**{"state": "succeeded", "finished_at": 950.0, "result": None, "started_at": 940.0, **fields})


class Copying(Cases):
    async def test_every_job_is_dumped_once(self, storage: Storage) -> None:
        done = await start(storage)
        await end(storage, done, Succeeded("1"))
        running = await start(storage)
        late = await put(storage, delay=60.0)
        records = await everything(storage, "job", 1)
        states = {record["id"]: record["state"] for record in records}
        assert len(records) == len(states)
        assert states == {done.id: "succeeded", running.id: "running", late: "ready"}
        assert [each["id"] for each in sorted(records, key=lambda each: each["seq"])] == [done.id, running.id, late]

    async def test_a_dumped_job_is_all_there_is_of_it(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(
            storage, tags=("a", "b"), meta='{"k":1}', reason="why", priority=7, max_attempts=4, timeout=9.0
        )
        job = await end(storage, job, failing(after=3.0))
        clock.advance(4)
        again = only(await take(storage, await a_live_pod(storage)))
        job = await end(storage, again, Snoozed(5.0))
        record = only(await everything(storage, "job"))
        assert differing(record, {**msgspec.to_builtins(job), "state": "ready"}) == []
        assert {*Job.__struct_fields__} - {*record} <= {"deadline", "cancel_wanted", "finished_at", "result", "behind"}

    async def test_what_was_dumped_is_found_the_same(self, storage: Storage) -> None:
        await put(storage, a_job(), a_unique_job("k", include_succeeded=True, period=60.0))
        await end(storage, (await take(storage, await a_live_pod(storage)))[0], failing(final=True))
        await edit(storage, paused=True, pause_reason="why")
        for kind in storage.kinds():
            records = await everything(storage, kind)
            assert list(await storage.load(kind, records)) == [SAME] * len(records), kind
            assert await everything(storage, kind) == records

    async def test_a_removed_job_can_be_put_back(self, storage: Storage) -> None:
        job = await end(storage, await start(storage, tags=("t",)), failing(final=True, message="gone"))
        record = only(await everything(storage, "job"))
        assert (await write(storage, lifecycle.remove(job))).accepted
        assert only(await storage.load("job", [record])) == WRITTEN
        assert await look(storage, job.id) == job
        assert await ids(storage, "tag:t") == [job.id]
        assert await ids(storage, "gone") == [job.id]

    async def test_loaded_jobs_are_what_they_were(self, storage: Storage, clock: FakeClock) -> None:
        now = clock.now()
        entry = {"attempt": 3, "kind": "error", "type": "E", "message": "m", "ended_at": now - 5}
        records = [
            a_record(seq=4, run_at=now + 60.5, created_at=now - 100, attempt=2, snoozes=3, throttles=4, crashes=1),
            an_ended_record(seq=2, result='{"x":1}', finished_at=now - 1.25, attempt=1),
            an_ended_record(seq=1, state="failed", error_count=40, errors=[{**entry, "attempt": 39}, entry], attempt=9),
            an_ended_record(seq=3, state="cancelled", meta='{"m":1}', reason="r", tags=["x", "y"], warning="w"),
        ]  # fmt: skip
        assert list(await storage.load("job", records)) == [WRITTEN] * 4
        jobs = {job.id: job for job in await storage.get([record["id"] for record in records])}
        assert [jobs[record["id"]].state.value for record in records] == [
            "scheduled",
            "succeeded",
            "failed",
            "cancelled",
        ]
        for record in records:
            job = msgspec.to_builtins(jobs[record["id"]])
            assert differing({**record, "errors": []}, {**job, "errors": []}) in ([], ["state"])
        failed = jobs[records[2]["id"]]
        assert [error.attempt for error in failed.errors] == [39, 3]
        assert near(failed.errors[1].ended_at, now - 5)

    async def test_the_order_of_insertion_is_kept(self, storage: Storage) -> None:
        records = [a_record(seq=seq) for seq in (30, 10, 20)]
        await storage.load("job", records[:2])
        await storage.load("job", records[2:])
        newer = await put(storage)
        jobs = await take(storage, await a_live_pod(storage))
        assert [job.id for job in jobs] == [records[n]["id"] for n in (1, 2, 0)] + [newer]

    async def test_a_job_is_claimed_as_it_was_left(self, storage: Storage, clock: FakeClock) -> None:
        record = a_record(attempt=3, priority=9, timeout=30.0, queue="elsewhere")
        await storage.load("job", [record])
        job = only(await take(storage, await a_live_pod(storage), want("elsewhere")))
        assert (job.id, job.attempt, job.args) == (record["id"], 4, '{"n":1}')
        assert near(job.deadline, clock.now() + 30)
        assert (await end(storage, job, Succeeded("2"))).result == "2"

    async def test_a_known_id_is_compared_and_left_alone(self, storage: Storage) -> None:
        record = an_ended_record(attempt=1)
        await storage.load("job", [record])
        other = {**record, "args": '{"n":2}', "state": "failed"}
        assert only(await storage.load("job", [other])) == Loaded("differs", "args, state")
        live = {**record, "state": "ready", "id": an_id()}
        assert list(await storage.load("job", [record, live])) == [SAME, WRITTEN]
        assert (await look(storage, record["id"])).args == '{"n":1}'

    async def test_a_live_key_that_is_held_refuses_its_job_alone(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job("key"))
        key = (await look(storage, holder)).unique_key
        taken, ended, other = a_record(seq=5, unique_key=key), an_ended_record(seq=6, unique_key=key), a_record(seq=7)
        answers = await storage.load("job", [taken, ended, other])
        assert [answer.outcome for answer in answers] == ["refused", "written", "written"]
        assert str(key) in answers[0].error
        assert not await storage.get([taken["id"]])

    async def test_a_loaded_key_is_held(self, storage: Storage) -> None:
        record = a_record(unique_key="key")
        await storage.load("job", [record])
        answer = only(await storage.insert([a_unique_job("key")]))
        assert (answer.id, answer.outcome) == (record["id"], "duplicate")

    async def test_a_key_held_by_a_success_is_held_again(self, storage: Storage, clock: FakeClock) -> None:
        done = an_ended_record(unique_key="key@0#")
        again = a_unique_job("key", include_succeeded=True, period=3600.0)
        await storage.load("job", [done])
        first = only(await storage.insert([again]))
        key = (await look(storage, again.id)).unique_key
        assert first.outcome == "inserted"
        assert (await write(storage, lifecycle.cancel(await look(storage, again.id)))).accepted
        held = [record for record in await everything(storage, "held") if record["key"] == key]
        assert only(held)["id"] == again.id
        other = an_ended_record(unique_key=key)
        fresh = {"key": "another", "id": other["id"], "until": clock.now() + 60}
        assert list(await storage.load("held", [fresh, *held])) == [WRITTEN, SAME]

    async def test_a_bad_record_is_refused_alone(self, storage: Storage) -> None:
        good = a_record()
        bad = [a_record(seq=2, state="odd"), {"id": an_id(), "state": "ready"}]
        answers = await storage.load("job", [bad[0], good, bad[1]])
        assert [answer.outcome for answer in answers] == ["refused", "written", "refused"]
        assert all(answer.error for answer in answers if answer.outcome == "refused")
        assert await ids(storage) == [good["id"]]

    async def test_a_job_whose_place_is_taken_goes_to_the_end(self, storage: Storage) -> None:
        first, second = a_record(seq=1), a_record(seq=1)
        await storage.load("job", [first])
        assert only(await storage.load("job", [second])) == WRITTEN
        assert {*await ids(storage)} == {first["id"], second["id"]}

    async def test_queues_keep_their_settings(self, storage: Storage) -> None:
        await edit(storage, "mail", paused=True, paused_by="me", pause_reason="why", max_workers=3)
        await edit(storage, "post", rate=5.0, timeout=7.0, aging=60.0, keep_failed=3.0)
        records = {record["name"]: record for record in await everything(storage, "queue")}
        mail, post = await queue(storage, "mail"), await queue(storage, "post")
        moved = [{**records["mail"], "name": "mail2"}, {**records["post"], "name": "post2"}]
        assert list(await storage.load("queue", moved)) == [WRITTEN, WRITTEN]
        assert await queue(storage, "mail2") == msgspec.structs.replace(mail, name="mail2")
        assert await queue(storage, "post2") == msgspec.structs.replace(post, name="post2")

    async def test_a_queue_that_nobody_has_set_is_overwritten_and_any_other_is_not(self, storage: Storage) -> None:
        await put(storage, queue="plain")
        await edit(storage, "mine", max_workers=1)
        records = {record["name"]: record for record in await everything(storage, "queue")}
        theirs = {"version": 4, "max_workers": 9}
        answers = await storage.load("queue", [{**records["plain"], **theirs}, {**records["mine"], **theirs}])
        assert [answer.outcome for answer in answers] == ["written", "differs"]
        assert answers[1].error == "max_workers, version"
        assert (await queue(storage, "plain")).max_workers == 9
        assert (await queue(storage, "mine")).max_workers == 1
