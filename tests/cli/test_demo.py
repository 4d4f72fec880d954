"""The demo is believed because it is run: real processes, a real kill -9, and the books read from the database."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from treadle import App, JobView, PodView
from treadle.cli import demo_scene, demo_tasks, demo_view
from treadle.cli.output import Output
from treadle.core.job import ErrorEntry, Job, State
from treadle.core.queue import Queue, QueueStats
from treadle.core.view import job_view, queue_view

from .conftest import Treadle

COMMAND = (sys.executable, "-m", "treadle.cli", "demo")
LONGEST = 75.0  # the demo's own limit, and time to start and to clean up
NOW = 1_800_000_000.0


def environ(folder: Path, **more: str) -> dict[str, str]:
    """Temporary folders are made in `folder`, where we can see whether they go again."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "NO_COLOR"))}
    return {**kept, "TMPDIR": str(folder), **more}


def workers_of(pid: int) -> list[str]:
    """The command lines of the workers that this demo started."""
    listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout.splitlines()
    return [line for line in listed if "demo_tasks:app" in line and line.split()[-1] == str(pid)]


# The whole, once -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    code: int
    seconds: float
    answer: dict[str, Any]
    told: list[str]
    workers: list[str]
    jobs: Sequence[JobView]
    pods: Sequence[PodView]
    error: str


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    begun = time.monotonic()
    # A wrong setting and a broken treadle.toml of somebody else's: neither may matter.
    (folder / "treadle.toml").write_text("lease = 'for ever'\n")
    process = subprocess.Popen(
        [*COMMAND, "--json", "--keep"],
        cwd=folder,
        env=environ(folder, TREADLE_QUEUES="nowhere", TREADLE_LEASE="1h"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=LONGEST)
    seconds = time.monotonic() - begun
    assert out, err
    answer = json.loads(out)

    async def read() -> tuple[list[JobView], Sequence[PodView]]:
        async with App(answer["url"]) as app:
            found = await app.jobs.find(limit=1000)
            return [await app.jobs.get(job.id) for job in found.jobs], await app.pods.list()

    jobs, pods = asyncio.run(read())
    return Played(process.returncode, seconds, answer, err.splitlines(), workers_of(process.pid), jobs, pods, err)


@pytest.mark.slow
@pytest.mark.journey
class TestTheWhole:
    def test_ends_by_itself_and_well(self, played: Played) -> None:
        assert played.code == 0, played.error
        assert played.answer["ok"] is True
        assert played.answer["problems"] == []
        assert played.seconds < LONGEST
        assert played.workers == []

    def test_the_sum_is_right_and_the_database_agrees(self, played: Played) -> None:
        answer = played.answer
        states = [job.state for job in played.jobs]
        assert answer["enqueued"] == len(played.jobs) > 300
        assert answer["enqueued"] == answer["succeeded"] + answer["failed"] + answer["cancelled"]
        assert (answer["lost"], answer["open"]) == (0, 0)
        for state in ("succeeded", "failed", "cancelled"):
            assert answer[state] == states.count(state) == sum(queue[state] for queue in answer["queues"])
        assert (answer["failed"], answer["cancelled"]) == (2, 1)

    def test_a_worker_was_killed_and_its_jobs_were_rescued(self, played: Played) -> None:
        (lost,) = [pod for pod in played.pods if pod.state == "lost"]
        rescued = [job for job in played.jobs if any(error.kind == "worker_lost" for error in job.errors)]
        assert len(rescued) == played.answer["rescued"] > 0
        assert {error.pod for job in rescued for error in job.errors if error.kind == "worker_lost"} == {lost.id}
        assert {job.state for job in rescued} == {"succeeded"}
        assert {job.attempt for job in rescued} == {2}
        assert 0 <= played.answer["rescue_seconds"] < 15

    def test_everything_that_is_told_happened(self, played: Played) -> None:
        by_task: dict[str, list[JobView]] = {}
        for job in played.jobs:
            by_task.setdefault(job.task, []).append(job)
        webhooks = by_task["webhooks.deliver"]
        assert {job.attempt for job in webhooks if job.state == "succeeded"} >= {1, 2, 3}
        assert [job.attempt for job in webhooks if job.state == "failed"] == [3]
        (declined,) = [job for job in by_task["orders.charge"] if job.state == "failed"]
        assert declined.attempt == 1
        assert len(by_task["orders.sync_stock"]) == played.answer["duplicates"] == 1
        assert [(job.snoozes > 0, job.state) for job in by_task["reports.export"]] == [(True, "succeeded")]
        assert sum(job.throttles for job in by_task["sms.send"]) > 0
        (reminder,) = by_task["orders.remind"]
        assert reminder.started_at is not None
        assert reminder.started_at >= reminder.run_at > reminder.created_at
        assert played.answer["overtaken"] > 0
        assert any("pages: ctx.iterate goes on behind them" in line for line in played.told)

    def test_the_story_is_plain_text_that_fits_a_terminal(self, played: Played) -> None:
        story = [line for line in played.told if re.match(r" *[0-9.]+ s  ", line)]
        words = [line[9:19].strip() for line in story]
        for word in ("enqueue", "priority", "retry", "throttle", "unique", "cancel", "fail", "snooze", "done"):
            assert word in words
        assert words.index("kill -9") + 1 == words.index("rescue")
        assert max(map(len, story)) < 80
        assert "\x1b" not in played.error

    def test_keep_says_where_and_what_to_do_there(self, played: Played) -> None:
        url = played.answer["url"]
        assert Path(url.removeprefix("sqlite:///")).is_file()
        dashboard, *commands = [line.strip() for line in played.told if line.startswith("  treadle ")]
        assert dashboard.startswith(f"treadle web --url {url}")
        assert len(commands) == 3
        for command in commands:
            done = subprocess.run(
                f"{sys.executable} -m treadle.cli {command.removeprefix('treadle ')} --json",
                shell=True,
                capture_output=True,
                text=True,
                cwd=Path(url.removeprefix("sqlite:///")).parent,
            )
            assert done.returncode == 0 and done.stdout, done.stderr


# Its other ends ------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A demo on a terminal, and our end of that terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        COMMAND,
        cwd=tmp_path,
        env=environ(tmp_path, TERM="xterm-256color", COLUMNS="80", LINES="24"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    yield process, ours
    process.kill()
    process.wait()
    os.close(ours)


def read_until(terminal: int, wanted: bytes, limit: float = 30.0) -> bytes:
    seen = b""
    until = time.monotonic() + limit
    while wanted not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # the other end is closed: the process has ended
                break
    return seen


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_on_a_terminal_it_leaves_nothing_behind(
    started: tuple[subprocess.Popen[bytes], int], tmp_path: Path, number: signal.Signals
) -> None:
    process, terminal = started
    seen = read_until(terminal, b"priority")
    assert b"priority" in seen and b"\x1b[" in seen, seen
    assert len(workers_of(process.pid)) == 2
    process.send_signal(number)
    rest = read_until(terminal, b"nothing of the kind")
    assert process.wait(10) == 130
    assert b"Traceback" not in rest
    assert (seen + rest).rfind(b"\x1b[?25h") > (seen + rest).rfind(b"\x1b[?25l"), "the cursor stays hidden"
    assert workers_of(process.pid) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.journey
def test_too_slow_it_says_what_is_still_open_and_fails(tmp_path: Path) -> None:
    hurried = "import treadle.cli.demo as demo; demo.HARD_LIMIT = 2.0; from treadle.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hurried, "demo"],
        env=environ(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode == 1
    assert "treadle: not done after 2 s" in done.stderr
    assert "treadle: still ready: " in done.stderr and "of mail.newsletter" in done.stderr
    assert "still open" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.journey
def test_a_worker_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    broken = (
        "import treadle.cli.demo as demo; demo.SETTINGS['DISABLE'] = 'worker'; from treadle.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken, "demo"], env=environ(tmp_path), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert re.search("treadle: worker [12] ended by itself", done.stderr)
    assert "switched off" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["url", "app"])
def test_it_takes_nobody_elses_database_or_app(treadle: Treadle, option: str) -> None:
    ran = treadle("demo", f"--{option}", "sqlite:///mine.db")
    assert ran.code == 2
    assert f"leave out --{option}" in ran.err


# The books -----------------------------------------------------------------------------------------------------------


def job(id: str, state: str = "succeeded", **fields: Any) -> JobView:
    fields = {"task": "mail.newsletter", "queue": "mail", "attempt": 1, **fields}
    return job_view(Job(id=id, state=State(state), args="{}", **fields))


def test_the_books_add_up() -> None:
    error = ErrorEntry(attempt=1, kind="error", type="ValueError", message="no")
    jobs = [job("a"), job("b", attempt=2, crashes=1), job("c", attempt=3), job("d", "failed", errors=(error,))]
    ending = demo_scene.books(jobs, ["a", "b", "c", "d"], {"d": "failed"})
    assert ending.ok
    assert ending.totals["enqueued"] == 4
    assert (ending.totals["succeeded"], ending.totals["failed"]) == (3, 1)
    assert (ending.totals["retried"], ending.totals["rescued"]) == (1, 1)
    assert [queue["name"] for queue in ending.queues] == list(demo_tasks.QUEUES)


@pytest.mark.parametrize(
    ("jobs", "asked", "problem"),
    [
        ([job("a")], ["a", "b"], "job b was enqueued and is not in the database"),
        ([job("a"), job("b")], ["a"], "job b is in the database and nobody enqueued it"),
        ([job("a", "running"), job("b", "running")], ["a", "b"], "still running: 2 of mail.newsletter"),
        ([job("a", "failed")], ["a"], "mail.newsletter a failed, and should have succeeded"),
    ],
)
def test_what_is_wrong_in_the_books_is_named(jobs: list[JobView], asked: list[str], problem: str) -> None:
    ending = demo_scene.books(jobs, asked, {})
    assert not ending.ok
    assert ending.problems == [problem]


# The picture ---------------------------------------------------------------------------------------------------------


def queue(cool_until: float | None = None, **counts: int) -> Any:
    return queue_view(QueueStats(queue=Queue(name="sms", cool_until=cool_until), **counts), [])


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (queue(ready=5, cool_until=NOW + 2.2), "cooling 3 s"),
        (queue(ready=5, running=2, cool_until=NOW - 1), "2 running"),
        (queue(running=4, scheduled=8), "4 running, 8 scheduled"),
        (queue(succeeded=3, cool_until=NOW + 3), "done"),
        (queue(), ""),
    ],
)
def test_a_queue_says_what_it_does(seen: Any, said: str) -> None:
    assert demo_view.note(seen, NOW)[0] == said


@pytest.mark.parametrize("width", [50, 80, 100, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_picture_fits_any_width_and_needs_no_colours(
    width: int, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console
    from rich.live import Live

    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    view = demo_view.LiveView()
    view._console = Console(file=stream, width=width, height=24, force_terminal=True, no_color=True)
    view._live = Live(console=view._console, auto_refresh=False, transient=True)
    workers = [("worker 1", "killed"), ("worker 2", "runs 12"), ("worker 3", "starts")]
    with view:
        view.tell(3.2, "throttle", "the provider said 429: its queue cools, all the others go on")
        view.show(demo_view.Snapshot(3.0, NOW, [queue(succeeded=20, running=4, ready=30)], workers))
    written = stream.buffer.getvalue().decode(encoding)
    assert not re.search(r"\x1b\[[0-9;]*(3|4|9|10)[0-9]m", written), "a colour"
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in written.replace("\r", "\n").split("\n")]
    assert max(map(len, lines)) <= width
    assert any("20/54" in line for line in lines)


def test_the_table_has_the_same_columns_with_and_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    demo_view.print_table(Output(), demo_scene.books([job("a")], ["a"], {}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["queue", "enqueued", "succeeded", "failed", "cancelled", "retried", "rescued"]
    assert lines[1].split() == ["mail", "1", "1", "0", "0", "0", "0"]
    assert lines[-1].split()[:3] == ["all", "1", "1"]
    assert len({len(line) for line in lines}) == 1


def test_no_view_lives_where_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "shows_progress", property(lambda out: not out.quiet))
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(demo_view.view_for(Output()), demo_view.LiveView)
    assert isinstance(demo_view.view_for(Output(as_json=True)), demo_view.PlainView)
    assert isinstance(demo_view.view_for(Output(quiet=True)), demo_view.PlainView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(demo_view.view_for(Output()), demo_view.PlainView)


def test_demo_tasks_belong_to_the_demo_alone() -> None:
    assert not set(demo_tasks.app.tasks) & set(App("memory://").tasks)
    assert {task.queue for task in demo_tasks.app.tasks.values()} == set(demo_tasks.QUEUES)


# In the dashboard ----------------------------------------------------------------------------------------------------

KEPT_OPEN = """
from pathlib import Path
from treadle.cli.demo_web import dashboard, furnish, keep_open
from treadle.cli.output import Output
from treadle.cli.demo_tasks import app

with dashboard(Output(), app.url, 0) as at:
    furnish()
    keep_open(Output(), at, Path.cwd())
"""


def test_the_dashboard_stays_open_on_a_living_system(tmp_path: Path) -> None:
    env = environ(tmp_path, TREADLE_URL=f"sqlite:///{tmp_path}/treadle.db")
    process = subprocess.Popen(
        [sys.executable, "-c", KEPT_OPEN], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        at = process.stderr.readline().split()[-1]
        rest: list[str] = []
        listening = threading.Thread(target=lambda: rest.extend(process.stderr or ()), daemon=True)
        listening.start()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline, done = time.monotonic() + 30, 0
        while time.monotonic() < deadline and not done:
            time.sleep(0.1)
            with opener.open(f"{at}/api/v1/queues", timeout=10) as answer:
                done = sum(queue["succeeded"] for queue in json.load(answer)["items"])
        assert done
        with opener.open(f"{at}/api/v1/schedules", timeout=10) as answer:
            assert {"nightly-report", "sync-stock"} <= {each["name"] for each in json.load(answer)["items"]}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        listening.join(30)
        assert workers_of(process.pid) == []
        # Jobs fail there on purpose: what workers say of them is in their logs.
        assert (tmp_path / "worker-4.log").is_file()
        assert len(rest) == 5 and rest[-1] == "Ctrl-C ends it, and removes its database.\n", rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.parametrize(
    ("told", "code"),
    [("Open the dashboard", 130), ("enqueue ", 130), ("throttle ", 130), ("Ctrl-C ends it", 0)],
    ids=["at once", "at the start", "in the story", "at the end"],
)
def test_ctrl_c_ends_the_demo_with_its_dashboard_at_every_stage(tmp_path: Path, told: str, code: int) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--web", "--port", "0"], cwd=tmp_path, env=environ(tmp_path), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if told in line:
                break
        process.send_signal(signal.SIGINT)
        said.extend(process.stderr)
        assert process.wait(30) == code, said
        assert "Traceback" not in "".join(said), said
        assert workers_of(process.pid) == []
        assert list(tmp_path.iterdir()) == []
        if code == 0:
            assert said[-1] == "Ended: the dashboard and the worker are stopped, the database is removed.\n"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
