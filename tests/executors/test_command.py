"""Commands: real programs, well-behaved and not. Faults are named by their ids in the list."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from treadle import App, ConfigError, PayloadError
from treadle.core.job import Job, State
from treadle.executors import posix
from treadle.executors.command import CommandExecutor
from treadle.ports import Call
from treadle.tasks.external.command import Command

from .bench import ONCE, a_script, at_work, descriptors, ended, is_alive, pid_in, until

pytestmark = pytest.mark.anyio
SH = "/bin/sh"


@pytest.fixture
def app() -> App:
    return App("memory://")


def shell(app: App, script: str, **options: Any) -> Any:
    """A command that is a shell script. The script is ours; a job has no part in it."""

    def run() -> Any: ...

    options = {"name": "run", "retry": ONCE} | options
    return app.command(SH, "-c", script, **options)(run)


async def what_becomes_of(app: App, script: str, **options: Any) -> Any:
    task = shell(app, script, **options)
    async with at_work(app):
        return await ended(await task.enqueue())


# What it gives and gets -----------------------------------------------------------------------------------------------


async def test_what_it_prints_is_the_result(app: App) -> None:
    @app.command("/bin/echo", "{greeting}", "--times={n}")
    def greet(greeting: str, n: int = 3) -> Any: ...

    async with at_work(app):
        assert await (await greet.enqueue("hello")).result("10s") == "hello --times=3"
        assert await (await greet.enqueue(greeting="hello", n=4)).result("10s") == "hello --times=4"
        assert await (await app.enqueue(greet.name, {"greeting": "by name"})).result("10s") == "by name --times=3"


@pytest.mark.parametrize(
    ("printed", "result"),
    [('{"a": [1, 2]}', {"a": [1, 2]}), ("12\n", 12), ("not json\n", "not json"), ("", None), ("\n", None)],
)
async def test_json_is_the_value_that_it_means(app: App, printed: str, result: Any) -> None:
    job = await what_becomes_of(app, f"printf '%s' {shlex.quote(printed)}".replace("{", "{{").replace("}", "}}"))
    assert (job.state, job.result) == ("succeeded", result)


async def test_text_stays_text_where_the_stub_says_so(app: App) -> None:
    @app.command("/bin/echo", "12")
    def number() -> str: ...

    async with at_work(app):
        assert await (await number.enqueue()).result("10s") == "12"


async def test_stdin_is_the_payload_or_one_argument_and_then_its_end(app: App) -> None:
    @app.command("/bin/cat", stdin="json")
    def whole(a: int, b: str = "ü") -> dict[str, Any]: ...

    @app.command("/bin/cat", stdin="{text}")
    def part(text: str) -> str: ...

    async with at_work(app):
        assert await (await whole.enqueue(1)).result("10s") == {"a": 1, "b": "ü"}
        assert await (await part.enqueue("x" * 500_000)).result("10s") == "[cut] " + "x" * (65536 - len("[cut] "))


async def test_L8_a_command_that_reads_stdin_finds_its_end(app: App) -> None:
    job = await what_becomes_of(app, "cat; echo end")
    assert job.result == "end"


async def test_its_output_goes_to_the_jobs_log_while_it_runs(app: App, tmp_path: Path) -> None:
    go = tmp_path / "go"
    task = shell(app, f"echo one; echo two >&2; while [ ! -e {go} ]; do sleep 0.02; done; echo three")
    async with at_work(app):
        handle = await task.enqueue()

        async def lines() -> list[str]:
            return [line.text for line in await app.jobs.logs(handle.id)]

        async with asyncio.timeout(8):
            while sorted(await lines()) != ["one", "two"]:
                await asyncio.sleep(0.05)
        assert (await handle.status()).state == "running"
        go.touch()
        await ended(handle)
        async with asyncio.timeout(8):
            while "three" not in await lines():
                await asyncio.sleep(0.05)


# How it ends ----------------------------------------------------------------------------------------------------------


async def test_another_exit_code_is_a_failed_attempt_with_the_end_of_stderr(app: App) -> None:
    job = await what_becomes_of(
        app, "yes many lines | head -n 2000 >&2; echo password=hunter2 no such picture >&2; exit 3"
    )
    assert job.state == "failed"
    assert job.error.message == "exit code 3: password=*** no such picture"
    assert len(job.error.trace) <= 4096
    assert job.error.trace.endswith("no such picture\n")
    assert "hunter2" not in job.error.trace
    assert job.error.kind == "error"


@pytest.mark.parametrize(
    ("code", "meaning", "state", "kind"),
    [
        (75, "throttle 30s", "scheduled", None),
        (76, "snooze 1h", "scheduled", None),
        (2, "fail", "failed", "error"),
        (4, "cancel", "cancelled", "cancelled"),
        (5, "done", "succeeded", None),
        (6, "retry 1h", "scheduled", "error"),
        (7, "retry", "scheduled", "error"),
    ],
)
async def test_an_exit_code_means_what_its_declaration_says(
    app: App, code: int, meaning: str, state: str, kind: str | None
) -> None:
    task = shell(app, f"echo 1; exit {code}", exits={code: meaning}, retry=3)
    async with at_work(app):
        handle = await task.enqueue()
        job = await ended(handle, "scheduled", "succeeded", "failed", "cancelled")
    assert (job.state, job.error and job.error.kind) == (state, kind)
    if meaning == "throttle 30s":
        assert job.attempt == 0


@pytest.mark.parametrize(("script", "code"), [("exit 126", 126), ("exit 127", 127), ("/no/such/program", 127)])
async def test_L5_a_command_that_cannot_run_fails_for_good(app: App, script: str, code: int) -> None:
    job = await what_becomes_of(app, script, retry=5)
    assert (job.state, job.attempt) == ("failed", 1)
    assert f"exit code {code}" in job.error.message


async def test_L5_a_program_that_vanishes_after_the_start_fails_for_good(app: App, tmp_path: Path) -> None:
    program = Path(a_script(tmp_path / "program", "#!/bin/sh\n"))

    @app.command(str(program), retry=5)
    def run() -> None: ...

    async with at_work(app):
        program.unlink()
        job = await ended(await run.enqueue())
    assert (job.state, job.attempt) == ("failed", 1)
    assert "exit code 127" in job.error.message
    assert "No such file" in job.error.message


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
async def test_L5_a_signal_that_we_did_not_send_is_a_crash(app: App, number: signal.Signals) -> None:
    job = await what_becomes_of(app, f"kill -{int(number)} $$")
    assert (job.state, job.error.kind) == ("failed", "worker_lost")
    assert number.name in job.error.message


async def test_L2_what_it_has_started_ends_with_it(app: App, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    job = await what_becomes_of(app, f"sleep 60 & echo $! > {file}; echo done")
    assert job.result == "done"
    await until(lambda: not is_alive(int(file.read_text())))


async def test_L2_a_cancel_ends_the_whole_group(app: App, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    task = shell(app, f"sleep 60 & echo $! > {file}; wait")
    async with at_work(app):
        handle = await task.enqueue()
        grandchild = await pid_in(file)
        await handle.cancel()
        assert (await ended(handle)).state == "cancelled"
        await until(lambda: not is_alive(grandchild))


async def test_a_deadline_ends_it(app: App, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    job = await what_becomes_of(app, f"echo $$ > {file}; exec sleep 60", timeout=0.3)
    assert (job.state, job.error.kind, job.error.type) == ("failed", "timeout", "")
    assert not is_alive(int(file.read_text()))


async def test_L4_who_ignores_term_is_killed(app: App, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    task = shell(app, f"trap '' TERM; echo $$ > {file}; while true; do sleep 0.05; done")
    async with at_work(app):
        handle = await task.enqueue()
        pid = await pid_in(file)
        began = time.monotonic()
        await handle.cancel()
        assert (await ended(handle)).state == "cancelled"
        await until(lambda: not is_alive(pid))
        assert 0.3 < time.monotonic() - began < 15


async def test_who_obeys_term_may_clean_up(app: App, tmp_path: Path) -> None:
    file, cleaned = tmp_path / "pid", tmp_path / "cleaned"
    script = f"trap 'touch {cleaned}; exit 0' TERM; echo $$ > {file}; while true; do sleep 0.02; done"
    task = shell(app, script)
    async with at_work(app):
        handle = await task.enqueue()
        await pid_in(file)
        await handle.cancel()
        await ended(handle)
    assert cleaned.exists()


async def test_a_pod_that_stops_takes_its_commands_along_and_gives_their_jobs_back(app: App, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    task = shell(app, f"trap '' TERM; echo $$ > {file}; while true; do sleep 0.05; done")
    async with app:
        async with at_work(app):
            handle = await task.enqueue()
            pid = await pid_in(file)
        assert not is_alive(pid)
        assert ((job := await handle.status()).state, job.attempt) == ("ready", 0)


async def test_an_executor_that_closes_does_not_wait_for_anybodys_grace(tmp_path: Path) -> None:
    def run() -> None: ...

    file = tmp_path / "pid"
    script = f"trap '' TERM; echo $$ > {file}; while true; do sleep 0.05; done"
    command = Command(run, "run", (SH, "-c", script), {})
    executor = CommandExecutor([command], lambda name: command, grace=60.0)
    await executor.start()
    job = Job(id="j", task="run", queue="q", state=State.RUNNING, attempt=1, args="{}")
    running = asyncio.create_task(executor.run(Call(run, (), {}, job)))
    pid = await pid_in(file)
    running.cancel()
    await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        await executor.close()
        await asyncio.wait([running])
    assert not is_alive(pid)


async def test_a_run_leaves_nothing_behind_while_the_worker_goes_on(app: App) -> None:
    task = shell(app, "touch a; pwd")
    async with at_work(app):
        folder = Path(await (await task.enqueue()).result("10s"))
        assert not folder.exists()
        assert folder.parent.exists()


def test_L1_a_command_dies_with_its_pod(tmp_path: Path) -> None:
    """The pod is killed, and has no moment to say anything. R51."""
    file = tmp_path / "pid"
    script = f"""
import asyncio
from treadle import App
app = App("memory://")
@app.command("/bin/sh", "-c", "echo $$ > {file}; exec sleep 60")
def run() -> None: ...
async def main():
    async with app.worker():
        await run.enqueue()
        await asyncio.sleep(60)
asyncio.run(main())
"""
    pod = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    try:
        child = asyncio.run(pid_in(file))
        assert is_alive(child)
    finally:
        pod.kill()
        pod.wait()
    asyncio.run(until(lambda: not is_alive(child)))


def test_R51_a_child_whose_parent_is_gone_already_does_not_begin(tmp_path: Path) -> None:
    """The race between fork and prctl: the parent-death signal was asked for too late."""
    ran = tmp_path / "ran"
    spec = posix.launch.spec(1 if os.getpid() != 1 else 2, {}, {}, None)  # somebody else's number
    done = subprocess.run([sys.executable, "-I", "-S", posix.launch.__file__, spec, "/bin/touch", str(ran)])
    assert done.returncode == -signal.SIGKILL
    assert not ran.exists()


# What it cannot do ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["1", "2"])
async def test_L3_output_without_end_is_read_to_its_end_and_bounded(app: App, stream: str) -> None:
    before = resident()
    job = await what_becomes_of(app, f"head -c 150M /dev/zero >&{stream}; echo end")
    assert job.state == "succeeded"
    assert job.result.endswith("end")
    assert resident() - before < 64 * 1024 * 1024
    assert len(await logged(app, job.id)) < 20


async def test_L3_lines_without_end_are_logged_as_far_as_a_person_could_read(app: App) -> None:
    job = await what_becomes_of(app, "yes | head -n 500000")
    assert job.state == "succeeded"
    assert job.result.startswith("[cut] ")


@pytest.mark.parametrize("value", ["a;b", "$(id)", "`id`", "a\nb", "*", "|x", "'", '"', "  ", "~", "a\\nb", "", "ü☃"])
async def test_L6_an_argument_is_one_argument_whatever_is_in_it(app: App, value: str) -> None:
    @app.command("/usr/bin/printf", "<%s>", "{value}", dashes=["value"])
    def show(value: str) -> str: ...

    async with at_work(app):
        assert await (await show.enqueue(value)).result("10s") == f"<{value}>"


async def test_L6_a_list_is_as_many_arguments(app: App) -> None:
    @app.command("/usr/bin/printf", "<%s>", "--", "{values}")
    def show(values: list[str]) -> str: ...

    async with at_work(app):
        assert await (await show.enqueue(["a b", "-c", ""])).result("10s") == "<--><a b><-c><>"


async def test_L7_it_inherits_no_secrets_and_no_descriptors(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    monkeypatch.setenv("PASSED", "on")
    held = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(held, True)
    script = (
        "env | cut -d= -f1 | sort | tr '\\n' ' '; echo; ls /proc/self/fd | tr '\\n' ' '; echo; umask; pwd; echo $OWN"
    )
    job = await what_becomes_of(app, script, env={"OWN": "x", "LANG": "C"}, inherit=["PASSED", "NOT_SET"])
    os.close(held)
    names, fds, umask, folder, own = job.result.splitlines()
    assert names.split() == ["HOME", "LANG", "OWN", "PASSED", "PATH", "PWD", "TMPDIR"]
    assert fds.split() == ["0", "1", "2", "3"]  # 3 is the folder that ls reads
    assert umask == "0077"
    assert own == "x"
    assert not Path(folder).exists()


async def test_L7_it_can_gain_no_privileges_and_leads_its_own_session(app: App) -> None:
    job = await what_becomes_of(app, "grep NoNewPrivs /proc/self/status; cut -d' ' -f6 /proc/self/stat; echo $$")
    privileges, session, pid = job.result.split("\n")
    assert privileges.split() == ["NoNewPrivs:", "1"]
    assert session == pid


async def test_L9_a_file_that_grows_too_large_ends_it_and_nothing_is_left(app: App, tmp_path: Path) -> None:
    job = await what_becomes_of(app, "exec head -c 10M /dev/zero > big", file_size="64KiB", root=str(tmp_path))
    assert (job.state, job.error.kind) == ("failed", "limit")
    assert "64KiB" in job.error.message
    assert list(tmp_path.iterdir()) == []


async def test_L9_what_a_killed_pod_left_behind_is_removed_at_the_next_start(app: App, tmp_path: Path) -> None:
    script = f"""
import os, sys
from treadle.executors.folders import Folders
folders = Folders({str(tmp_path)!r})
open(folders.make() + "/left", "w").write("x")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert len(list(tmp_path.rglob("left"))) == 1
    job = await what_becomes_of(app, f"ls {tmp_path}/*/*/left 2>/dev/null; echo none", root=str(tmp_path))
    assert job.result == "none"
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_may_not_be_entered_is_removed_all_the_same(app: App, tmp_path: Path) -> None:
    await what_becomes_of(app, "mkdir -p a/b; touch a/b/c; ln -s /etc e; chmod 0 a/b a .", root=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert Path("/etc").stat().st_mode & 0o700 == 0o700


async def test_the_processors_time_is_bounded(app: App) -> None:
    job = await what_becomes_of(app, "while :; do :; done", cpu=1, timeout=20)
    assert (job.state, job.error.kind) == ("failed", "limit")


async def test_limits_are_set_and_core_files_are_off(app: App) -> None:
    limits: dict[str, Any] = {"memory": "512MiB", "file_size": "1MiB", "processes": 50_000, "open_files": 20}
    job = await what_becomes_of(app, "ulimit -v; ulimit -n; ulimit -c; grep 'Max proc' /proc/self/limits", **limits)
    memory, files, core, processes = job.result.split("\n")
    assert (memory, files, core) == (str(512 * 1024), "20", "0")
    assert "50000" in processes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_it_runs_as_another_user_for_good(app: App, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    script = "grep -E '^(Uid|Gid|Groups)' /proc/self/status; touch mine && echo wrote"
    job = await what_becomes_of(app, script, user="nobody", root=str(tmp_path))
    assert job.state == "succeeded", job.error
    user, _group, groups, wrote = job.result.split("\n")
    assert len(set(user.split()[1:])) == 1
    assert user.split()[1] != "0"
    assert groups.split() == ["Groups:"]
    assert wrote == "wrote"
    assert list(tmp_path.iterdir()) == []


async def test_nothing_is_left_open(app: App) -> None:
    task = shell(app, "echo x")
    async with at_work(app):
        await (await task.enqueue()).result("10s")
        before = descriptors()
        for handle in [await task.enqueue() for _ in range(10)]:
            await handle.result("10s")
        assert descriptors() <= before


# What is refused at the start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.chmod(0o644), "not a program that can be run"),
        (lambda path: path.chmod(0o775), "chmod go-w"),
        (lambda path: path.chmod(0o757), "chmod go-w"),
        (lambda path: path.parent.chmod(0o777), "chmod o-w"),
    ],
)
async def test_a_program_is_looked_at_when_the_worker_starts(app: App, tmp_path: Path, spoil: Any, words: str) -> None:
    program = Path(a_script(tmp_path / "program", "#!/bin/sh\n"))

    @app.command(str(program))
    def run() -> None: ...

    spoil(program)
    with pytest.raises(ConfigError, match=words):
        async with at_work(app):
            pass
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"cwd": "/no/such"}, "not a folder"), ({"root": "/no/such"}, "no folder"), ({"user": "nobody-here"}, "no user")],
)
async def test_its_surroundings_are_looked_at_when_the_worker_starts(
    app: App, options: dict[str, Any], words: str
) -> None:
    shell(app, "true", **options)
    with pytest.raises(ConfigError, match=words):
        async with at_work(app):
            pass


async def test_a_job_that_no_longer_fits_its_declaration_fails_without_running(app: App) -> None:
    @app.command("/bin/echo", "{n}", name="count")
    def count(n: int) -> None: ...

    other = App("memory://")
    async with app, at_work(app):
        other.lend(app.storage)
        for args in ({"n": "1"}, {"n": -1}):
            job = await ended(await other.enqueue("count", args))
            assert (job.state, job.attempt) == ("failed", 1)


def test_the_executor_is_there_only_where_a_command_is() -> None:
    app = App("memory://")
    from treadle.executors.build import executors_of

    assert executors_of(app, grace=1.0) == {}
    shell(app, "true")
    assert isinstance(executors_of(app, grace=1.0)["command"], CommandExecutor)


async def test_a_wrong_value_is_refused_where_it_is_enqueued(app: App) -> None:
    @app.command("/bin/echo", "{path}", "{n}", patterns={"path": r"/srv/[\w./-]+"})
    def show(path: str, n: int) -> None: ...

    for args in (("/etc/passwd", 1), ("/srv/x\n", 1), ("-x", 1), ("/srv/x", "1"), ("/srv/x", -1)):
        with pytest.raises(PayloadError):
            await show.enqueue(*args)
    await show.enqueue("/srv/x", 1)


async def test_a_link_that_leads_out_of_the_folder_is_not_followed(app: App, tmp_path: Path) -> None:
    """Seen right before the program starts: the name alone does not tell."""
    media, secret = tmp_path / "media", tmp_path / "secret"
    media.mkdir()
    secret.mkdir()
    (secret / "key").write_text("s3cret")
    (media / "plain").write_text("miaow")
    (media / "inside").symlink_to(media / "plain")
    (media / "file").symlink_to(secret / "key")
    (media / "folder").symlink_to(secret)
    (media / "dangling").symlink_to(secret / "new")
    (tmp_path / "other name").symlink_to(media)  # the folder itself may be one: whoever declared it has chosen it

    @app.command("/bin/cat", "{src}", paths={"src": tmp_path / "other name"}, retry=ONCE)
    def show(src: str) -> str: ...

    async with at_work(app):
        for fine in ("plain", "inside"):
            assert await (await show.enqueue(fine)).result("10s") == "miaow"
        for wrong in ("file", "folder/key", "folder", "dangling"):
            job = await ended(await show.enqueue(wrong))
            assert (job.state, job.attempt) == ("failed", 1)
            assert "leads out of" in job.error.message
            assert "s3cret" not in str(job)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def logged(app: App, job: str) -> list[Any]:
    return list(await app.jobs.logs(job))
