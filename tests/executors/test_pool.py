"""Pools: real workers that answer, babble, fall silent and die."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from treadle import App, ConfigError, PayloadError
from treadle.config import Timing
from treadle.core.backoff import Retry
from treadle.executors.pool_worker import Worker
from treadle.tasks.external.pool import PoolSpec

from .bench import ONCE, a_script, at_work, descriptors, ended, is_alive, pid_in, until

pytestmark = pytest.mark.anyio
ODD = Path(__file__).parent / "odd_worker.py"


class Odd:
    """An app with a pool of odd workers, and its one task."""

    def __init__(self, how: str = "", retry: Retry | int = ONCE, **options: Any) -> None:
        self.app = App("memory://")
        self.pool = self.app.pool("odd", [sys.executable, "-I", "-S", str(ODD), how], **options)

        @self.pool.task(name="odd.act", retry=retry)
        def act(act: str, given: Any = None) -> Any: ...

        self.act = act

    async def does(self, act: str, given: Any = None, **options: Any) -> Any:
        return await ended(await self.act.using(**options).enqueue(act, given))

    async def echo(self) -> Any:
        return (await self.does("echo")).result


async def test_a_job_goes_there_and_its_result_comes_back() -> None:
    odd = Odd()
    async with at_work(odd.app):
        handle = await odd.act.enqueue("echo", {"deep": ["ü", 1.5, None]})
        result = await handle.result("10s")
        assert result["given"] == {"deep": ["ü", 1.5, None]}
        run = result["run"]
        assert (run["job"], run["task"], run["attempt"], run["queue"]) == (handle.id, "odd.act", 1, "default")
        assert run["max_attempts"] == 1
        assert 3500 < run["timeout"] <= 3600
        second = await odd.echo()
        assert second["pid"] == result["pid"]  # the same process
        assert second["run"]["id"] != run["id"]
        assert second["run"]["args"] == {"act": "echo", "given": None}


@pytest.mark.parametrize(
    ("outcome", "state", "kind", "message"),
    [
        ({"status": "failed", "error": "no luck"}, "failed", "error", "no luck"),
        (
            {"status": "failed", "error": {"type": "Bad", "message": "token=abc", "trace": "at x"}},
            "failed",
            "error",
            "token=***",
        ),
        ({"status": "failed"}, "failed", "error", ""),
        ({"status": "fail", "error": "never"}, "failed", "error", "never"),
        ({"status": "cancelled"}, "cancelled", "cancelled", ""),
        ({"status": "snooze", "after": 60}, "scheduled", None, None),
        ({"status": "throttle", "after": 60}, "scheduled", None, None),
        ({"status": "throttle"}, "scheduled", None, None),
    ],
)
async def test_an_outcome_means_what_the_same_word_means_in_python(
    outcome: dict[str, Any], state: str, kind: str | None, message: str | None
) -> None:
    odd = Odd()
    async with at_work(odd.app):
        job = await ended(await odd.act.enqueue("status", outcome), "scheduled", "failed", "cancelled")
        assert (job.state, job.error and job.error.kind, job.error and job.error.message) == (state, kind, message)
        if state == "scheduled":
            assert job.attempt == 0


async def test_a_worker_that_cannot_be_told_what_to_do_is_not_lost_with_it() -> None:
    odd = Odd()

    @odd.pool.task(name="odd.default", retry=ONCE)
    def odd_default(value: Any = object()) -> Any: ...  # noqa: B008 - that is what is odd

    async with at_work(odd.app):
        for _ in range(2):
            assert (await ended(await odd_default.enqueue())).state == "failed"
        assert await odd.echo()


async def test_who_closes_what_it_is_heard_or_told_by_is_replaced() -> None:
    odd = Odd()
    async with at_work(odd.app):
        mute = await odd.does("mute")
        assert (mute.state, mute.error and mute.error.type) == ("failed", "ProtocolError")
        first = await odd.echo()
        assert (await odd.does("closes its ears")).result == "the last one"
        assert (await odd.echo())["pid"] != first["pid"]


async def test_a_worker_that_is_ready_is_told_of_at_once() -> None:
    """Nobody claims for a pool without a worker; so whoever claims must hear of the next one, and not by chance."""
    odd = Odd(recycle=1)
    async with at_work(odd.app, Timing(poll=30.0, beat=0.2, lease=3.0, start_jitter=0.0)):
        handles = [await odd.act.enqueue("echo") for _ in range(3)]
        for handle in handles:
            await ended(handle, within=8.0)


async def test_retry_after_is_exact_and_costs_an_attempt() -> None:
    odd = Odd(retry=3)
    async with at_work(odd.app):
        handle = await odd.act.enqueue("status", {"status": "retry", "after": 3600, "error": "busy"})
        job = await ended(handle, "scheduled")
        assert (job.attempt, job.error.message) == (1, "busy")
        assert 3500 < job.run_at.timestamp() - time.time() <= 3601


@pytest.mark.parametrize(
    ("act", "given", "words"),
    [
        ("say", "no json", "no json"),
        ("say", '{"type":"dance"}', "dance"),
        ("say", '{"type":"outcome"}', "id"),
        ("say", '{"type":"outcome","id":"1","status":"retry"}', "needs after"),
        ("say", '{"type":"outcome","id":"1","status":"snooze","after":-1}', "after"),
        ("say", '{"type":"ready","protocol":1}', "twice"),
        ("say", "[" * 100_000, "protocol"),
        ("other id", None, "another"),
        ("long line", None, "a line of more than"),
    ],
)
async def test_garbage_and_a_wrong_id_cost_the_attempt_and_the_worker(act: str, given: Any, words: str) -> None:
    odd = Odd()
    async with at_work(odd.app):
        before = (await odd.echo())["pid"]
        job = await odd.does(act, given)
        assert (job.state, job.error.kind, job.error.type) == ("failed", "error", "ProtocolError")
        assert words in job.error.message
        assert (await odd.echo())["pid"] != before
        await until(lambda: not is_alive(before))  # killed: on a busy machine the end takes a moment


async def test_an_outcome_that_nobody_asked_for_is_garbage_too() -> None:
    odd = Odd()
    async with at_work(odd.app):
        before = (await odd.echo())["pid"]
        assert (await odd.does("twice")).result == 1
        assert (await odd.echo())["pid"] != before


async def test_silence_is_ended_where_there_is_a_heartbeat() -> None:
    odd = Odd(heartbeat=0.3)
    async with at_work(odd.app):
        before = (await odd.echo())["pid"]
        assert (await odd.does("beats")).result == "alive"
        job = await odd.does("silent")
        assert (job.state, job.error.kind) == ("failed", "limit")
        assert "nothing for 0.3 s" in job.error.message
        await until(lambda: not is_alive(before))  # killed: on a busy machine the end takes a moment
        assert (await odd.echo())["pid"] != before


async def test_silence_is_borne_until_the_deadline_where_there_is_none() -> None:
    odd = Odd()
    async with at_work(odd.app):
        before = (await odd.echo())["pid"]
        job = await odd.does("silent", timeout=0.3)
        assert (job.state, job.error.kind) == ("failed", "timeout")
        await until(lambda: not is_alive(before))  # killed: on a busy machine the end takes a moment
        assert (await odd.echo())["pid"] != before


@pytest.mark.parametrize(("act", "given", "words"), [("die", "SIGSEGV", "SIGSEGV"), ("exit", 7, "exit code 7")])
async def test_death_is_a_crash_of_the_job_that_ran_and_of_no_other(act: str, given: Any, words: str) -> None:
    odd = Odd(size=2)
    async with at_work(odd.app):
        other = await odd.act.enqueue("silent", 0.5)
        job = await odd.does(act, given)
        assert (job.state, job.error.kind) == ("failed", "worker_lost")
        assert words in job.error.message
        assert await other.result("10s") == "late"


async def test_a_job_that_kills_every_worker_is_poison() -> None:
    odd = Odd(retry=Retry(max_attempts=10, base=0.01, cap=0.01))
    async with at_work(odd.app):
        job = await odd.does("die", "SIGKILL")
        assert (job.state, job.error.kind, job.attempt) == ("failed", "poison", 3)


async def test_a_cancel_that_is_heeded_keeps_the_worker(tmp_path: Path) -> None:
    odd, file = Odd(), tmp_path / "pid"
    async with at_work(odd.app):
        handle = await odd.act.enqueue("obeys", str(file))
        pid = await pid_in(file)
        await handle.cancel()
        assert (await ended(handle)).state == "cancelled"
        assert (await odd.echo())["pid"] == pid


async def test_who_is_done_when_the_cancel_comes_has_succeeded(tmp_path: Path) -> None:
    odd, file = Odd(), tmp_path / "pid"
    async with at_work(odd.app):
        handle = await odd.act.enqueue("too late", str(file))
        await pid_in(file)
        await handle.cancel()
        assert await handle.result("10s") == "done all the same"


async def test_a_timeout_that_is_heeded_is_a_timeout(tmp_path: Path) -> None:
    odd = Odd()
    async with at_work(odd.app):
        job = await odd.does("obeys", str(tmp_path / "pid"), timeout=0.2)
        assert job.error.kind == "timeout"


async def test_who_is_deaf_is_killed(tmp_path: Path) -> None:
    odd, file = Odd(), tmp_path / "pid"
    async with at_work(odd.app):
        handle = await odd.act.enqueue("deaf", str(file))
        pid = await pid_in(file)
        await handle.cancel()
        assert (await ended(handle)).state == "cancelled"
        assert not is_alive(pid)
        assert (await odd.echo())["pid"] != pid


async def test_what_a_worker_has_started_dies_with_it(tmp_path: Path) -> None:
    odd, file = Odd(), tmp_path / "pid"
    async with at_work(odd.app):
        await odd.does("grandchild", str(file))
        await until(lambda: not is_alive(int(file.read_text())))


async def test_a_pod_that_stops_gives_the_job_back_and_leaves_no_process(tmp_path: Path) -> None:
    odd, file = Odd("stays", size=2), tmp_path / "pid"
    async with odd.app:
        async with at_work(odd.app):
            idle = (await odd.echo())["pid"]
            handle = await odd.act.enqueue("deaf", str(file))
            pid = await pid_in(file)
        assert not is_alive(pid)
        assert not is_alive(idle)
        assert ((job := await handle.status()).state, job.attempt) == ("ready", 0)


def test_L1_the_workers_of_a_pool_die_with_their_pod(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"""
import asyncio, sys
from treadle import App
app = App("memory://")
pool = app.pool("odd", [sys.executable, "-I", "-S", {str(ODD)!r}, ""])
@pool.task(name="odd.act")
def act(act: str, given: str) -> None: ...
async def main():
    async with app.worker():
        await act.enqueue("deaf", {str(file)!r})
        await asyncio.sleep(60)
asyncio.run(main())
"""
    pod = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    try:
        child = asyncio.run(pid_in(file))
    finally:
        pod.kill()
        pod.wait()
    asyncio.run(until(lambda: not is_alive(child)))


async def test_progress_and_lines_are_the_jobs() -> None:
    odd = Odd()
    async with at_work(odd.app):
        handle = await odd.act.enqueue("reports", 1.6)
        async with asyncio.timeout(8):
            while (job := await handle.status()).progress is None:
                await asyncio.sleep(0.02)
        assert (job.progress.done, job.progress.total, job.progress.note) == (3, 4, "nearly")
        await ended(handle)
        async with asyncio.timeout(8):
            while len(lines := list(await odd.app.jobs.logs(handle.id))) < 2:
                await asyncio.sleep(0.02)
        assert sorted((line.level, line.text) for line in lines) == [("info", "on stderr"), ("warning", "careful")]


async def test_R53_a_flood_on_stderr_blocks_nobody_and_is_bounded() -> None:
    odd = Odd()
    async with at_work(odd.app):
        assert (await odd.does("flood")).result == "dry"


async def test_R53_a_worker_that_never_stops_talking_is_heard_as_far_as_a_person_could_read() -> None:
    odd = Odd()
    async with at_work(odd.app):
        handle = await odd.act.enqueue("chatter")
        assert await handle.result("10s") == "quiet"
        async with asyncio.timeout(8):
            while not any("were not logged" in line.text for line in await odd.app.jobs.logs(handle.id)):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("dies at once", "no such module, token=***"),
        ("never ready", "not ready within 0.3 s"),
        ("newer", "speaks protocol 2"),
    ],
)
async def test_a_worker_that_is_not_fit_costs_no_job(how: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    odd = Odd(how, start=0.3 if how == "never ready" else 20)
    with caplog.at_level(logging.ERROR, "treadle.pool.odd"):
        async with at_work(odd.app):
            handle = await odd.act.enqueue("echo")
            await until(lambda: len(caplog.records) >= 2)
            job = await handle.status()
            async with asyncio.timeout(10):  # with a beat
                while words not in (told := await handle.explain()).summary:
                    await asyncio.sleep(0.02)
            assert told.causes[0].code == "executor-down"
    assert job.attempt == 0
    assert job.state in ("ready", "scheduled", "running")
    assert words in caplog.text
    rests = [record.args[2] for record in caplog.records if record.args]  # type: ignore[index]
    assert rests[:2] == [0.2, 0.4]


async def test_a_start_that_is_given_up_anywhere_leaves_nothing_open() -> None:
    spec = PoolSpec("odd", [sys.executable, "-I", "-S", str(ODD), ""])
    before = descriptors()
    for steps in range(8):
        worker = Worker(spec, logging.getLogger("treadle.pool.odd"))
        starting = asyncio.create_task(worker.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        worker.kill()
        await asyncio.sleep(0.01)
        assert descriptors() == before, steps


async def test_a_worker_is_recycled_after_so_many_jobs() -> None:
    odd = Odd(recycle=2)
    async with at_work(odd.app):
        pids = [(await odd.echo())["pid"] for _ in range(5)]
    assert (pids[0], pids[2]) == (pids[1], pids[3])
    assert len(set(pids)) == 3


async def test_as_many_run_at_once_as_there_are_workers() -> None:
    odd = Odd(size=3)
    async with at_work(odd.app):
        began = time.monotonic()
        handles = await odd.app.enqueue_many(odd.act.bind("silent", 0.3) for _ in range(6))
        for handle in handles:
            await handle.result("30s")
        assert time.monotonic() - began >= 0.6
        jobs = [await handle.status() for handle in handles]
    spans = [(job.started_at, job.finished_at) for job in jobs]
    assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) >= 3


async def test_many_jobs_pass_through_few_workers_and_nothing_is_left_open() -> None:
    odd = Odd(size=2)
    async with at_work(odd.app):
        await odd.echo()
        before = descriptors()
        handles = await odd.app.enqueue_many(odd.act.bind("echo", n) for n in range(200))
        results = [await handle.result("20s") for handle in handles]
        assert [result["given"] for result in results] == list(range(200))
        assert len({result["pid"] for result in results}) == 2
        for _ in range(5):
            await odd.does("die", "SIGKILL")
        await odd.echo()
        await until(lambda: descriptors() <= before)


async def test_what_is_wrong_with_a_pool_is_said_at_once(tmp_path: Path) -> None:
    app = App("memory://")
    for argv, options, words in (
        (["node", "x.js"], {}, "absolute"),
        ([], {}, "program"),
        (["/bin/sh", "a\0b"], {}, "NUL"),
        (["/bin/sh"], {"size": 0}, "size"),
        (["/bin/sh"], {"heartbeat": 0}, "heartbeat"),
        (["/bin/sh"], {"cwd": "here"}, "cwd"),
        (["/bin/sh"], {"env": {"A B": "x"}}, "environment"),
    ):
        with pytest.raises(ConfigError, match=words):
            app.pool("p", argv, **options)  # type: ignore[arg-type]
    pool = app.pool("p", [a_script(tmp_path / "w", "#!/bin/sh\n")])

    @pool.task(name="p.x")
    def x(n: int) -> None: ...

    with pytest.raises(PayloadError, match=r"n: .* expected int"):
        await x.enqueue("1")  # type: ignore[arg-type]
    (tmp_path / "w").chmod(0o777)
    with pytest.raises(ConfigError, match="chmod go-w"):
        async with at_work(app):
            pass
    twin = app.pool("p", ["/bin/sh"])

    @twin.task(name="p.y")
    def y() -> None: ...

    with pytest.raises(ConfigError, match="declared twice"):
        async with at_work(app):
            pass


async def test_a_worker_gets_a_clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET", "x")
    script = """#!/bin/sh
read -r hello
echo '{"type":"ready","protocol":1}'
read -r run
id=$(echo "$run" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')
names=$(env | cut -d= -f1 | sort | tr '\\n' ' ')
printf '{"type":"outcome","id":"'$id'","status":"succeeded","result":"%s"}\\n' "$names"
read -r end
"""
    app = App("memory://")
    pool = app.pool("p", [a_script(tmp_path / "w", script)], env={"OWN": "1"})

    @pool.task(name="p.env")
    def env() -> str: ...

    async with at_work(app):
        names = (await (await env.enqueue()).result("10s")).split()
    assert names == ["HOME", "LANG", "OWN", "PATH", "PWD", "TMPDIR"]
    assert os.environ["SECRET"] == "x"


WHO = """#!/bin/sh
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":"\\([^"]*\\)".*/\\1/p')
  case $line in
    *'"type":"hello"'*) echo '{"type":"ready","protocol":1}' ;;
    *'"type":"run"'*)
      printf '{"type":"outcome","id":"%s","status":"succeeded","result":%s}\\n' "$id" "$(id -u)" ;;
  esac
done
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_its_workers_run_as_another_user(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    app = App("memory://")
    pool = app.pool("who", ["/bin/sh", a_script(tmp_path / "who.sh", WHO)], user="nobody", cwd="/")

    @pool.task(name="who.am_i", retry=ONCE)
    def am_i() -> int:
        raise NotImplementedError

    async with at_work(app):
        handle = await am_i.enqueue()
        job = await ended(handle)
        assert job.state == "succeeded", job.error
        assert job.result not in (None, 0)
