"""What people see of Treadle at a prompt: every name has a docstring with an example that holds, every public name is
on docs/reference/api.md, and nothing else is shown.

A new attribute of App, Context, Task or Handle is public, and then stands in the lists below and has a docstring; or it
is for other parts of Treadle, and then stands in `_NOT_SHOWN` beside its class.
"""

from __future__ import annotations

import asyncio
import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle import App, Context, JobFailed

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
# An alias of a type has no docstring of its own; its module's has the example.
ALIASES = {"Middleware": "treadle.middleware"}
NAMES = [name for name in treadle.__all__ if name != "__version__" and name not in ALIASES]


@pytest.fixture
def scene() -> Iterator[dict[str, Any]]:
    """What the examples find there: an app, a task that sends mail, a job of it that succeeded and one that failed."""
    app = App("memory://")
    app.limit("slack", "1/m")

    @app.task(name="send", queue="mail", retry=1, description="sends a mail")
    async def send(ctx: Context, user: int) -> str:
        ctx.log.info("to %d", user)
        await ctx.progress(1, 2, "half")
        if user == 13:
            raise ConnectionError("the far side is down")
        return f"sent to {user}"

    async def scene_of() -> tuple[Any, Any]:
        async with app.worker(["mail"], children=False):
            good, bad = await send.enqueue(7), await send.enqueue(13)
            await good.result(timeout=60)
            with pytest.raises(JobFailed):
                await bad.result(timeout=60)
            return good, bad

    sent, failed = asyncio.run(scene_of())
    yield {"app": app, "send": send, "sent": sent, "failed": failed}
    app.close_sync()


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_an_example_that_holds(scene: dict[str, Any], name: str) -> None:
    """An example is what a prompt shows. Without one, `help(treadle.JobView)` says what it is, and not how to come by
    it."""
    check(getattr(treadle, name), name, scene)


def check(value: Any, name: str, scene: dict[str, Any]) -> None:
    text = inspect.getdoc(value) if "__doc__" in vars(value) else None
    assert text, f"{name} has no docstring"
    names = {each: getattr(treadle, each) for each in treadle.__all__}
    example = doctest.DocTestParser().get_doctest(text, {**names, **scene}, name, None, None)
    assert example.examples, f"{name} has no example: lines that begin with >>>, and what they answer"
    report: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(example, out=report.append)
    assert not failed, "".join(report)


FACES = [
    "answers",
    "audit",
    "catalog",
    "history",
    "jobs",
    "limits",
    "locks",
    "operations",
    "pods",
    "queues",
    "schedules",
]


@pytest.mark.parametrize("face", FACES)
def test_what_an_app_is_asked_through_has_an_example_that_holds(scene: dict[str, Any], face: str) -> None:
    check(type(getattr(scene["app"], face)), face, scene)


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_shown_by_its_module(name: str) -> None:
    import importlib

    module = importlib.import_module(ALIASES[name])
    assert name in vars(module)
    assert f"@app.{name.lower()}" in (module.__doc__ or "")


# What is shown --------------------------------------------------------------------------------------------------------

APP = {
    "answers",
    "audit",
    "catalog",
    "close",
    "close_sync",
    "command",
    "cron",
    "dashboard",
    "enqueue",
    "enqueue_many",
    "enqueue_many_sync",
    "enqueue_sync",
    "every",
    "find",
    "handle",
    "history",
    "http",
    "include",
    "is_open",
    "jobs",
    "limit",
    "limits",
    "lock",
    "locks",
    "middleware",
    "name",
    "named",
    "on",
    "on_cancelled",
    "on_enqueued",
    "on_failed",
    "on_released",
    "on_rescued",
    "on_retried",
    "on_snoozed",
    "on_started",
    "on_succeeded",
    "on_throttled",
    "on_waiting",
    "open",
    "open_sync",
    "operations",
    "pods",
    "pool",
    "queue",
    "queues",
    "schedules",
    "task",
    "tasks",
    "url",
    "warnings",
    "warnings_sync",
    "worker",
}
CTX = {
    "answer",
    "answer_kind",
    "answer_sync",
    "answer_token",
    "answer_token_sync",
    "attempt",
    "cancelled",
    "checkpoint",
    "checkpoint_sync",
    "created_at",
    "deadline",
    "drain",
    "drain_sync",
    "enqueue",
    "enqueue_sync",
    "fire_at",
    "flush",
    "flush_sync",
    "follow",
    "has_answer",
    "iterate",
    "iterate_sync",
    "job_id",
    "last_error",
    "last_progress",
    "last_progress_sync",
    "limit",
    "limit_sync",
    "log",
    "max_attempts",
    "meta",
    "pod",
    "priority",
    "progress",
    "progress_sync",
    "queue",
    "reason",
    "remaining",
    "resume",
    "resume_sync",
    "schedule",
    "set_meta",
    "slot",
    "started_at",
    "state",
    "stopping",
    "tags",
    "task",
    "token",
    "transaction",
    "transaction_sync",
    "waited",
}
TASK = {
    "aliases",
    "bind",
    "bind_named",
    "cpu",
    "enqueue",
    "enqueue_sync",
    "executor",
    "follow_up",
    "function",
    "handle",
    "is_async",
    "memory",
    "name",
    "queue",
    "retry",
    "timeout",
    "using",
}
HANDLE = {
    "cancel",
    "cancel_sync",
    "explain",
    "explain_sync",
    "id",
    "outcome",
    "result",
    "result_sync",
    "status",
    "status_sync",
}


def shown(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def test_completion_shows_what_is_public_and_nothing_else(scene: dict[str, Any]) -> None:
    """`dir(app)` listed 77 names, 26 of them for other parts of Treadle: `client`, `door`, `heed`, `lend` …"""
    assert shown(scene["app"]) == APP
    assert shown(Context.without_job("send")) == CTX
    assert shown(scene["send"]) == TASK
    assert shown(scene["sent"]) == HANDLE


def test_every_public_name_is_on_the_page(scene: dict[str, Any]) -> None:
    """The page said "everything" and left out 18 exported names, `app.operations`, `app.audit` and `app.answers`. It is
    generated; what generates it could leave something out again."""
    page = (Path(__file__).parent.parent / "docs" / "reference" / "api.md").read_text()
    missing = [name for name in treadle.__all__ if name != "__version__" and f"\n| `{name}` |" not in page]
    members = {"app": APP - {*FACES}, "ctx": CTX, "task": TASK, "handle": HANDLE}
    members |= {f"app.{face}": shown(getattr(scene["app"], face)) for face in FACES}
    for of, names in members.items():
        rows = page.partition(f"\n## {of}\n")[2].partition("\n## ")[0]
        missing += [f"{of}.{name}" for name in names if f"`{of}.{name}" not in rows and f", `{name}` |" not in rows]
    assert missing == []
