"""Reads: getting, finding and counting jobs."""

from __future__ import annotations

import pytest

from ...core import lifecycle
from ...core.errors import FilterError
from ...core.filter import parse
from ...core.job import State
from ...core.outcome import Stopped, Succeeded, Throttled
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_unique_job, an_error, an_id, failing, only
from .steps import Cases, a_live_pod, end, ids, look, put, rescue, search, start, take, take_one, write


class Get(Cases):
    async def test_unknown_ids_are_left_out(self, storage: Storage) -> None:
        one, other = await put(storage), await put(storage)
        found = await storage.get([one, an_id(), other])
        assert sorted(job.id for job in found) == [one, other]

    async def test_asking_for_nothing_finds_nothing(self, storage: Storage) -> None:
        await put(storage)
        assert list(await storage.get([])) == []

    async def test_a_job_is_read_with_its_whole_history(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for message in ("first", "second"):
            await end(storage, job, failing(after=0.0, message=message))
            job = await take_one(storage, pod)
        assert [error.message for error in (await look(storage, job.id)).errors] == ["first", "second"]


class Nowhere(Cases):
    """A name that some storages cannot hold comes from outside, too: it is looked for in vain, and breaks nothing."""

    async def test_what_cannot_be_stored_is_nowhere(self, storage: Storage) -> None:
        await put(storage)
        name = "a\0b"
        for found in (
            (await storage.failures(queue=name)).groups,
            (await storage.failures(task=name)).groups,
            await storage.rollups(60, 0.0, queue=name),
            await storage.rollups(60, 0.0, task=name),
            await storage.readings(60, 0.0, pod=name),
            await storage.timeline(name),
            await storage.progress([name]),
            await storage.logs(name),
            await storage.fires(name),
            await storage.audit(before=name),
            await storage.get([name]),
        ):
            assert list(found) == []
        assert await storage.checkpoint(name) is None
        assert await storage.operation(name) is None

    async def test_what_cannot_be_stored_is_not_there_to_be_changed(self, storage: Storage) -> None:
        name = "a\0b"
        assert not await storage.order_pod(name, "quiet")
        assert not await storage.drain_limit(name)
        assert not await storage.remove_limit(name)
        assert not await storage.free(name, None)
        assert not await storage.unmute(name)


class Find(Cases):
    async def test_the_newest_come_first(self, storage: Storage) -> None:
        jobs = [a_job(priority=n % 3) for n in range(5)]
        await put(storage, *jobs)
        assert await ids(storage) == [job.id for job in reversed(jobs)]

    async def test_what_is_next_may_come_first(self, storage: Storage) -> None:
        late, soon, now = [await put(storage, delay=delay) for delay in (60.0, 10.0, 0.0)]
        assert await ids(storage, next_first=True) == [now, soon, late]

    async def test_a_list_shows_the_last_error_only(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for message in ("first", "second"):
            await end(storage, job, failing(after=0.0, message=message))
            job = await take_one(storage, pod)
        found = only((await search(storage)).jobs)
        assert [error.message for error in found.errors] == ["second"]
        assert found.error_count == 2

    async def test_a_page_has_no_more_than_asked_for(self, storage: Storage) -> None:
        await put(storage, *(a_job() for _ in range(5)))
        page = await search(storage, limit=3)
        assert len(page.jobs) == 3
        assert page.next is not None

    async def test_a_last_page_has_no_next(self, storage: Storage) -> None:
        await put(storage, *(a_job() for _ in range(3)))
        assert (await search(storage, limit=3)).next is None
        assert (await search(storage, "queue:unheard-of")).next is None

    async def test_pages_are_complete_and_without_doubles(self, storage: Storage) -> None:
        jobs = [a_job(tags=("odd",) if n % 2 else ()) for n in range(25)]
        await put(storage, *jobs)
        for text, expected in (("", jobs), ("tag:odd", jobs[1::2])):
            assert await every_page(storage, text, limit=4) == [job.id for job in reversed(expected)]

    async def test_pages_by_time_are_complete_and_without_doubles(self, storage: Storage) -> None:
        jobs = [a_job(delay=float(n * 7 % 5)) for n in range(20)]
        await put(storage, *jobs)
        expected = sorted(jobs, key=lambda job: (job.delay, job.id))
        assert await every_page(storage, limit=3, next_first=True) == [job.id for job in expected]

    async def test_jobs_that_arrive_between_pages_double_nothing(self, storage: Storage) -> None:
        jobs = [a_job() for _ in range(10)]
        await put(storage, *jobs)
        first = await search(storage, limit=4)
        await put(storage, *(a_job() for _ in range(3)))
        rest = await search(storage, limit=10, cursor=first.next)
        assert [job.id for job in (*first.jobs, *rest.jobs)] == [job.id for job in reversed(jobs)]

    async def test_jobs_that_leave_between_pages_hide_nothing(self, storage: Storage) -> None:
        jobs = [a_job() for _ in range(10)]
        await put(storage, *jobs)
        first = await search(storage, "state:ready", limit=4)
        for job in first.jobs:
            await write(storage, lifecycle.cancel(job))
        rest = await search(storage, "state:ready", limit=10, cursor=first.next)
        assert [job.id for job in (*first.jobs, *rest.jobs)] == [job.id for job in reversed(jobs)]


class Count(Cases):
    async def test_jobs_are_counted_by_state(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await end(storage, await start(storage, pod), Succeeded())
        await start(storage, pod)
        await put(storage, a_job(), a_job(), a_job(delay=5.0))
        counts = await storage.count(parse(""))
        expected = {State.SUCCEEDED: 1, State.RUNNING: 1, State.READY: 2, State.SCHEDULED: 1}
        assert {state: number for state, number in counts.items() if number} == expected

    async def test_only_what_matches_is_counted(self, storage: Storage) -> None:
        await put(storage, a_job(queue="a"), a_job(queue="b", tags=("x",)), a_job(queue="b"))
        assert (await storage.count(parse("queue:b")))[State.READY] == 2
        assert (await storage.count(parse("queue:b -tag:x")))[State.READY] == 1
        assert sum((await storage.count(parse("queue:c"))).values()) == 0

    async def test_every_state_is_counted_by_queue(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for queue in ("a", "b", "b"):
            await end(storage, await start(storage, pod, queue=queue), Succeeded())
            await end(storage, await start(storage, pod, queue=queue), failing(final=True))
            await end(storage, await start(storage, pod, queue=queue), failing(after=60.0))
            await start(storage, pod, queue=queue)
        every = (State.SUCCEEDED, State.FAILED, State.SCHEDULED, State.RUNNING)
        assert dict(await storage.count(parse("queue:b"))) == dict.fromkeys(every, 2)
        assert dict(await storage.count(parse("queue:a,b"))) == dict.fromkeys(every, 3)
        assert dict(await storage.count(parse("queue:b state:failed,running"))) == {State.FAILED: 2, State.RUNNING: 2}
        assert dict(await storage.count(parse("-queue:b is:retrying"))) == {State.SCHEDULED: 1}

    async def test_running_jobs_are_counted_by_their_arguments(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for n in (7, 7, 8):
            await start(storage, pod, args=f'{{"n":{n}}}')
        assert dict(await storage.count(parse("state:running args.n:7"))) == {State.RUNNING: 2}

    async def test_no_count_is_higher_than_its_cap(self, storage: Storage) -> None:
        await put(storage, *(a_job() for _ in range(20)))
        assert (await storage.count(parse(""), cap=7))[State.READY] == 7

    async def test_a_job_that_is_due_is_counted_as_ready(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, delay=5.0)
        clock.advance(5)
        assert (await storage.count(parse("state:ready")))[State.READY] == 1
        assert sum((await storage.count(parse("state:scheduled"))).values()) == 0


class Filters(Cases):
    async def test_by_id(self, storage: Storage) -> None:
        await put(storage)
        id = await put(storage)
        assert await matching(storage, f"id:{id}") == [id]

    async def test_by_state(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        expected: dict[str, str] = {}
        for outcome in (Succeeded(), failing(final=True), Stopped(an_error(kind="cancelled"))):
            job = await end(storage, await start(storage, pod), outcome)
            expected[job.state.value] = job.id
        expected["running"] = (await start(storage, pod)).id
        expected["scheduled"] = await put(storage, delay=60.0)
        expected["ready"] = await put(storage)
        for state, id in expected.items():
            assert await matching(storage, f"state:{state}") == [id], state
        assert await matching(storage, "state:waiting") == []
        clock.advance(60)
        assert await matching(storage, "state:ready") == [expected["ready"], expected["scheduled"]]

    async def test_by_queue_task_and_tag(self, storage: Storage) -> None:
        one = await put(storage, queue="mail", task="send_one", tags=("vip", "eu"))
        other = await put(storage, queue="bills", task="send_all", tags=("eu",))
        assert await matching(storage, "queue:mail") == [one]
        assert await matching(storage, "task:send_all") == [other]
        assert await matching(storage, "task:send_*") == [other, one]
        assert await matching(storage, "tag:vip") == [one]
        assert await matching(storage, "tag:eu queue:mail") == [one]
        assert await matching(storage, "queue:mail,bills") == [other, one]
        assert await matching(storage, "tag:v") == []

    async def test_by_what_it_is_not(self, storage: Storage) -> None:
        one = await put(storage, queue="mail", tags=("vip",))
        other = await put(storage, queue="bills")
        assert await matching(storage, "-queue:mail") == [other]
        assert await matching(storage, "-tag:vip") == [other]
        assert await matching(storage, "-task:other") == [other, one]

    async def test_by_unique_key(self, storage: Storage) -> None:
        await put(storage)
        id = await put(storage, a_unique_job("invoice:7"))
        assert await matching(storage, 'unique:"invoice:7"') == [id]
        assert await matching(storage, "unique:invoice*") == [id]
        assert await matching(storage, "unique:*") == [id]

    async def test_by_cause(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await end(storage, await start(storage, pod), failing(final=True, type="KeyError", place="app:send"))
        await end(storage, await start(storage, pod), failing(final=True, type="OSError", place="app:send"))
        assert await matching(storage, 'cause:"work:KeyError:app:send"') == [job.id]

    async def test_by_parent_and_schedule(self, storage: Storage) -> None:
        child = await put(storage, meta='{"treadle:parent":"p-1"}')
        fired = await put(storage, meta='{"treadle:schedule":"nightly"}')
        assert await matching(storage, "parent:p-1") == [child]
        assert await matching(storage, "schedule:nightly") == [fired]

    async def test_by_pod(self, storage: Storage) -> None:
        one, other = await start(storage), await start(storage)
        assert await matching(storage, f"pod:{one.pod} state:running") == [one.id]
        assert await matching(storage, f"pod:{other.pod} state:running") == [other.id]

    async def test_by_what_it_is(self, storage: Storage, clock: FakeClock) -> None:
        due = await put(storage)
        later = await put(storage, queue="later", delay=60.0)
        retrying = await end(storage, await start(storage, queue="retrying"), failing(after=500.0))
        throttled = await end(storage, await start(storage, queue="throttled"), Throttled(500.0))
        cancelling = await start(storage, queue="cancelling")
        await write(storage, lifecycle.cancel(cancelling))
        assert await matching(storage, "is:due") == [due]
        assert await matching(storage, "is:retrying") == [retrying.id]
        assert await matching(storage, "is:throttled") == [throttled.id]
        assert await matching(storage, "is:cancelling") == [cancelling.id]
        assert await matching(storage, "is:stuck") == []
        clock.advance(LEASE + 31)
        assert await matching(storage, "is:stuck") == [cancelling.id]
        assert await matching(storage, "is:due") == [later, due]

    async def test_by_poison(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, queue="other")
        job = await start(storage)
        for _ in range(2):
            clock.advance(LEASE + 1)
            await rescue(storage, job)
            job = only(await take(storage, await a_live_pod(storage)))
        assert await matching(storage, "is:poison") == []
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert await matching(storage, "is:poison") == [job.id]

    async def test_by_time(self, storage: Storage, clock: FakeClock) -> None:
        old = await end(storage, await start(storage), Succeeded())
        clock.advance(7200)
        new = await end(storage, await start(storage), Succeeded())
        later = await put(storage, delay=600.0)
        assert await matching(storage, "age:>1h") == [old.id]
        assert await matching(storage, "age:<1h") == [later, new.id]
        assert await matching(storage, "created:>1h") == [old.id]
        assert await matching(storage, "finished:<1h") == [new.id]
        assert await matching(storage, "finished:1h..3h") == [old.id]
        assert await matching(storage, "due:<11m") == [later]
        assert await matching(storage, "due:>11m") == []
        assert await matching(storage, "created:2023-11-14") == [old.id]
        assert await matching(storage, "created:>=2023-11-15T00:00:00Z") == [later, new.id]

    async def test_by_number(self, storage: Storage) -> None:
        low, high = await put(storage, priority=-5, queue="other"), await put(storage, priority=5, queue="other")
        job = await end(storage, await start(storage), failing())
        assert await matching(storage, "priority:>0") == [high]
        assert await matching(storage, "priority:-5..0") == [job.id, low]
        assert await matching(storage, "attempt:1") == [job.id]
        assert await matching(storage, "attempt:<1") == [high, low]

    async def test_by_text(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, queue="other", reason="asked by Ann")
        job = await end(storage, await start(storage, pod), failing(final=True, message="card 100% declined_"))
        assert await matching(storage, 'error:"card 100%"') == [job.id]
        assert await matching(storage, "error:DECLINED_") == [job.id]
        assert await matching(storage, 'error:"card%declined"') == []
        assert await matching(storage, "error:ValueError") == [job.id]
        assert len(await matching(storage, "reason:ann")) == 1
        assert await matching(storage, '"declined"') == [job.id]

    async def test_by_arguments_meta_and_result(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod, args='{"user":{"id":42,"name":"Ann"},"list":["a","b"]}', meta='{"tenant":"x"}')
        await end(storage, job, Succeeded('{"rows":7}'))
        await put(storage, args='{"user":{"id":43}}')
        for text in ("args.user.id:42", "args.user.name:Ann", "args.list:b", "meta.tenant:x", "result.rows:>5"):
            assert await matching(storage, text) == [job.id], text
        assert await matching(storage, "args.user.id:44") == []

    async def test_a_thousand_queues_are_read_as_one_is(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await storage.insert([a_job(queue=f"queue-{n:03}", task=f"task-{n % 7}", priority=n % 3) for n in range(1000)])
        other = await start(storage, pod)
        await end(storage, other, failing(final=True))
        assert sum((await storage.count(parse(""))).values()) == 1001
        for text, number in {
            "": 1001, "state:ready": 1000, "state:failed": 1, "state:ready,failed": 1001, "priority:2": 333,
            "task:task-6": 142, "queue:queue-00*": 10, "-queue:queue-0*": 901, "is:due": 1000, "is:retrying": 0,
            "is:poison": 0, "finished:<1h": 1, "state:ready task:task-6": 142, "cause:*": 1,
        }.items():  # fmt: skip
            assert sum((await storage.count(parse(text))).values()) == number, text
            for next_first in (False, True):
                page = await search(storage, text, limit=1000, next_first=next_first)
                assert len(page.jobs) == min(number, 1000), text
        named = await search(storage, "queue:queue-777")
        assert [job.queue for job in named.jobs] == ["queue-777"]
        assert sum(group.count for group in (await storage.failures()).groups) == 1
        listed = {each.queue.name: each for each in await storage.queues()}
        assert len(listed) == 1001
        assert all(listed[f"queue-{n:03}"].ready == 1 for n in range(1000))

    async def test_a_number_that_no_column_holds_is_compared_all_the_same(self, storage: Storage) -> None:
        """Beyond 64 bits, beyond the calendar, beyond what a float tells apart: it matches as arithmetic says."""
        pod = await a_live_pod(storage)
        ended = await start(storage, pod, priority=5, args='{"n":7}')
        await end(storage, ended, Succeeded('{"n":7}'))
        ready = await put(storage, priority=5, args='{"n":7}')
        both = sorted([ready, ended.id], reverse=True)
        huge = ("9223372036854775808", "99999999999999999999", "1e300")
        for key in ("priority", "attempt", "args.n"):
            for number in huge:
                for text in (f"{key}:{number}", f"{key}:>{number}", f"{key}:<-{number}", f"{key}:{number}..{number}",
                             f"{key}:>={number}", f"{key}:-{number}"):  # fmt: skip
                    assert await everywhere(storage, text) == [], text
                assert await everywhere(storage, f"-{key}:{number}") == both
                for text in (f"{key}:<{number}", f"{key}:>-{number}", f"{key}:<={number}", f"{key}:-{number}..{number}",
                             f"{key}:>=-{number}"):  # fmt: skip
                    assert await everywhere(storage, text) == both, text
                assert await everywhere(storage, f"{key}:<{number} state:ready") == [ready]
        for text in ("created:>9999-12-31", "created:<0001-01-01", "created:0001-01-01..1000-01-01", "age:>36500d",
                     "created:9999-12-31", "created:0001-01-01T00:00:00+14:00", "created:9999-12-31T23:59:59-14:00",
                     "finished:>36500d", "due:>36500d", "wait:>36500d", "run:>36500d"):  # fmt: skip
            assert await everywhere(storage, text) == [], text
        for text in ("created:<9999-12-31", "created:>0001-01-01", "created:>=0001-01-01T00:00:00+14:00", "age:<36500d",
                     "created:0001-01-01..9999-12-31", "created:<=9999-12-31T23:59:59-14:00"):  # fmt: skip
            assert await everywhere(storage, text) == both, text
        for text in ("finished:<36500d", "finished:0001-01-01..9999-12-31", "run:<36500d"):
            assert await everywhere(storage, text) == [ended.id], text
        for word in ("nan", "inf", "-inf", "infinity", "1e999", "0x10", "1_000", "9" * 400, "٣"):
            for key in ("priority", "attempt"):
                for op in ("", ">", "<="):
                    with pytest.raises(FilterError):
                        parse(f"{key}:{op}{word}")
            for key in ("created", "age", "due", "finished", "wait", "run"):
                for unit in ("", "s", "d"):
                    with pytest.raises(FilterError):
                        parse(f"{key}:>{word}{unit}")

    async def test_texts_are_compared_as_they_are_shown(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod, args='{"note":"password=hunter2","list":["token=abc"],"n":7}')
        await end(storage, job, failing(after=None, message="no login: secret=hunter2"))
        other = await put(storage, reason="api_key=hunter2")
        for text in ("error:hunter2", "hunter2", "args.note:password=hunt*", "args.list:token=abc", "reason:hunt"):
            assert await matching(storage, text), text
            assert await matching(storage, f"{text} as:shown") == [], text
        for text in ("error:login", 'args.note:"password=***"', 'args.list:"token=***"', "args.n:>6", "no"):
            assert await matching(storage, f"as:shown {text}") == [job.id], text
        assert await matching(storage, 'as:shown reason:"api_key=***"') == [other]
        assert await matching(storage, "as:shown -error:hunter2") == [other, job.id]
        assert await matching(storage, "as:shown") == [other, job.id]

    async def test_hostile_values_match_only_themselves(self, storage: Storage) -> None:
        for tag in ("a'b", "100%", "a_b", "日本", 'q"q'):
            id = await put(storage, tags=(tag,))
            escaped = tag.replace('"', '\\"')
            assert await matching(storage, f'tag:"{escaped}"') == [id]
        assert await matching(storage, 'tag:"a%b"') == []
        assert await matching(storage, 'tag:"a?b"') == []


async def everywhere(storage: Storage, text: str) -> list[str]:
    """The same, with what is next coming first, too; the newest first."""
    by_time = await search(storage, text, next_first=True)
    assert sorted((job.id for job in by_time.jobs), reverse=True) == await ids(storage, text), text
    return await matching(storage, text)


async def matching(storage: Storage, text: str) -> list[str]:
    """The ids that a filter finds; a count must agree with it."""
    found = await ids(storage, text)
    assert sum((await storage.count(parse(text))).values()) == len(found), text
    return found


async def every_page(storage: Storage, text: str = "", **fields: object) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await search(storage, text, cursor=cursor, **fields)
        found += [job.id for job in page.jobs]
        cursor = page.next
        if cursor is None:
            return found
