"""What a person sees of a job that speaks: progress and lines, in `show`, `logs`, `tail` and `enqueue --wait`."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from pathlib import Path

import pytest

from treadle import App
from treadle.cli import joblogs, waiting
from treadle.cli.command import Invocation
from treadle.cli.output import Output
from treadle.core.logline import LogLine
from treadle.core.progress import Progress, Report

from .conftest import Store, Treadle

MISSING = str(uuid.UUID(int=7))
AT = 1_700_000_000_000_000  # 22:13:20


def say(store: Store, id: str, *texts: str, progress: Progress | None = None, first: int = 0) -> None:
    async def work(app: App) -> None:
        lines = [LogLine(id, AT + first + n, 1, "info", text) for n, text in enumerate(texts)]
        await app.storage.record_logs(lines)
        (job,) = await app.storage.get([id])
        if progress is not None:
            assert await app.storage.report([Report(id=id, token=job.token or "", attempt=1, progress=progress)])

    store.run(work)


def test_show_tells_progress_and_the_last_lines(treadle: Treadle, store: Store) -> None:
    id = store.running()
    texts = [f"line {n}" for n in range(12)]
    say(
        store,
        id,
        *texts,
        "a trace\nof two lines\x1b[2J",
        progress=Progress(done=4, total=10, note="page 4", data="[1]"),
    )
    ran = treadle("jobs", "show", id)
    (told,) = [line for line in ran.lines if line.startswith("progress")]
    assert told.split(maxsplit=1)[1] == "4/10  page 4"
    assert "22:13:20Z  1  info      line 11" in ran.lines
    assert "line 2" not in ran.out
    assert ran.out.endswith("a trace\n    of two lines\\u001b[2J\n")
    shown = treadle("jobs", "show", id, "--json").object["progress"]
    assert (shown["done"], shown["total"], shown["share"], shown["note"], shown["data"]) == (4, 10, 0.4, "page 4", [1])


def test_logs_are_printed_oldest_first(treadle: Treadle, store: Store) -> None:
    id = store.running()
    assert treadle("jobs", "logs", id).err == "it has logged nothing\n"
    say(store, id, "first", "second")
    ran = treadle("jobs", "logs", id)
    assert (ran.code, ran.lines) == (0, ["22:13:20Z  1  info      first", "22:13:20Z  1  info      second"])
    (only,) = treadle("jobs", "logs", id, "--json", "--limit", "1").objects
    assert only == {"n": AT + 1, "at": "2023-11-14T22:13:20.000Z", "attempt": 1, "level": "info", "text": "second"}


def test_logs_of_a_job_that_is_not_there_is_3(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "logs", MISSING)
    assert ran.code == 3
    assert ran.err.startswith(f"treadle: there is no job {MISSING}")


def test_following_goes_on_until_the_job_has_ended(
    treadle: Treadle, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joblogs, "EVERY", 0.05)
    id = store.enqueue()
    say(store, id, "first")

    def later() -> None:
        time.sleep(0.3)
        say(store, id, "second", first=5)
        store.run(lambda app: app.jobs.cancel(id))

    thread = threading.Thread(target=later)
    thread.start()
    ran = treadle("jobs", "logs", id, "--follow")
    thread.join()
    assert [line.split()[-1] for line in ran.lines] == ["first", "second"]


def test_tail_shows_what_running_jobs_say(treadle: Treadle, store: Store) -> None:
    id, other = store.running("mail"), store.running("slow", pod="pod2")
    say(store, id, "hello", progress=Progress(done=0.5, total=1.0, note="half"))
    say(store, other, "not asked for")
    say(store, store.succeeded("done"), "ended")
    ran = treadle("jobs", "tail", "queue:mail", "--once")
    assert ran.lines == [f"{id}  22:13:20Z  1  info      hello", f"{id}  shop.welcome: 50 %  half"]
    found = treadle("jobs", "tail", "--once", "--json").objects
    assert {each["id"]: each["text"] for each in found} == {id: "hello", other: "not asked for"}


def test_waiting_on_a_terminal_shows_the_tasks_own_bar(folder: Path, store: Store) -> None:
    id = store.running()
    say(store, id, progress=Progress(done=4, total=10, note="page \x1b4"))
    seen: list[tuple[float, float | None, str]] = []

    async def look(app: App) -> None:
        watching = asyncio.create_task(waiting.watch(app, id, lambda *told: seen.append(told)))
        async with asyncio.timeout(5):
            while not seen:
                await asyncio.sleep(0.01)
        watching.cancel()

    store.run(look)
    assert seen[0] == (4.0, 10.0, "page \\u001b4")


def test_the_bar_is_drawn_on_stderr_and_only_where_somebody_sees_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    id = store.running()
    call = Invocation(Output())

    async def show(app: App) -> None:
        async with waiting.bar_of(call, app, id):
            await asyncio.sleep(0.2)

    store.run(show)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(Output, "shows_progress", True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    store.run(show)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "running" in shown.err
