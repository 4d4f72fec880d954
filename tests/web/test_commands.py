"""Each question has the command that does the same: it follows the fields, the command line takes it, and it does it.

Every case has twins. On one of them the form is filled in and sent, on the other the command is run that the page shows
for the same values; both must look alike afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from treadle import App, Context, Wait
from treadle.cli import root
from treadle.core.command_line import Command, render
from treadle.testing.conformance.builders import a_pod

from .world import SAME, World, world_on

pytestmark = pytest.mark.anyio
TWINS = ("left", "right")
ADMIN = {"X-Role": "admin", **SAME}
HOSTILE = "it's; rm -rf ~ $(x)\n👩‍🚀"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", filled=False, pages=True) as made:
        yield made


# A form as a browser sees it ------------------------------------------------------------------------------------------


@dataclass
class Form(HTMLParser):
    """The fields of the one form of a question, and the command below it."""

    action: str = ""
    fields: list[list[str]] = field(default_factory=list)  # id, name, value
    template: str = ""
    command: str = ""
    _text: list[str] | None = None
    _in_ask: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "form" and "ask" in has.get("class", ""):
            self.action, self._in_ask = has["action"], True
        if not self._in_ask:
            return
        if tag == "input" and "name" in has:
            self.fields.append([has.get("id", ""), has["name"], has.get("value", "")])
        elif tag in ("select", "textarea"):
            self.fields.append([has.get("id", ""), has["name"], ""])
            self._text = [] if tag == "textarea" else None
        elif tag == "option" and "selected" in has:
            self.fields[-1][2] = has["value"]
        self.template = has.get("data-command", self.template)
        if tag == "button" and "data-copy" in has:
            self.command = has["data-copy"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._text is not None:
            self.fields[-1][2], self._text = "".join(self._text), None
        self._in_ask = self._in_ask and tag != "form"

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def fill(self, typed: dict[str, str]) -> None:
        by_id = {each[0].removeprefix("f-"): each for each in self.fields}
        for name, value in typed.items():
            by_id[name][2] = value

    @property
    def line(self) -> str:
        """The command for what is filled in now."""
        if not self.template:
            return self.command
        values = {id.removeprefix("f-"): value for id, _, value in self.fields if id}
        shown = render(msgspec.json.decode(self.template, type=Command), values)
        assert shown.whole, shown.text
        return shown.text


async def form_at(world: World, path: str) -> Form:
    answer = await world.http.get(path, headers=ADMIN)
    assert answer.status_code == 200, (path, answer.text[:500])
    found = Form()
    found.feed(answer.text)
    assert found.command.startswith("treadle "), path
    return found


async def send(world: World, form: Form) -> None:
    body = [(name, value) for _, name, value in form.fields]
    answer = await world.http.post(form.action, headers=ADMIN, data=_pairs(body))
    assert answer.status_code == 303, answer.text


def _pairs(body: list[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for name, value in body:
        found.setdefault(name, []).append(value)
    return found


# The command line -----------------------------------------------------------------------------------------------------


def parsed(line: str) -> click.Context:
    """The real command, with its options read and checked, and not run."""
    words = shlex.split(line)
    assert words[0] == "treadle"
    command: click.Command = root
    ctx = root.make_context("treadle", words[1:])
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])  # pyright: ignore[reportPrivateUsage]
        assert found is not None, line
        command = found
        ctx = command.make_context(name, rest, parent=ctx)
    return ctx


async def run(world: World, line: str, folder: Path) -> None:
    words = shlex.split(line)[1:]
    if "yes" in parsed(line).params:
        words = [*words[:2], "--yes", *words[2:]]
    environ = {"TREADLE_URL": world.app.url or ""}

    def work() -> Any:
        return CliRunner().invoke(root, words, env=environ)

    before = os.getcwd()
    os.chdir(folder)
    try:
        result = await asyncio.to_thread(work)
    finally:
        os.chdir(before)
    assert result.exit_code == 0, (line, result.output, result.exception)


# What is compared -----------------------------------------------------------------------------------------------------


async def _queue(app: App, name: str) -> Any:
    it = await app.queues.get(name)
    return (
        it.paused, it.pause_reason, it.paused_until is None, it.max_workers, it.rate, it.keep_failed, it.timeout,
        it.ready, it.cancelled,
    )  # fmt: skip


async def _schedule(app: App, name: str) -> Any:
    it = await app.schedules.get(name)
    return (
        it.expression, it.zone, it.task, it.queue, it.args, it.priority, it.misfire, it.overlap, it.jitter, it.paused,
        it.pause_reason, it.removed_at is None, len(await app.schedules.fires(name)),
    )  # fmt: skip


async def _limit(app: App, name: str) -> Any:
    return [(it.rate, it.burst) for it in await app.limits.list() if it.name == name]


async def _job(app: App, id: str) -> Any:
    try:
        it = await app.jobs.get(id)
    except Exception as error:
        return type(error).__name__
    return (it.state, it.priority, it.queue, it.cancel_wanted, it.run_at > it.created_at)


async def _newest(app: App, tag: str) -> Any:
    (it,) = (await app.jobs.find(f"tag:{tag}")).jobs
    return it.task, it.args, it.queue, it.priority, it.reason, sorted(it.tags)[0], it.run_at > it.created_at


async def _lock(app: App, name: str) -> Any:
    return [each.name for each in await app.locks.list() if each.name == name]


Make = Callable[[App, str], Awaitable[str]]
Read = Callable[[App, str], Awaitable[Any]]


async def _a_queue(app: App, twin: str) -> str:
    await app.enqueue("hello", {"name": "x"}, queue=twin)
    await app.queues.set(twin, rate="5/m", timeout="1h")
    return twin


async def _a_paused_queue(app: App, twin: str) -> str:
    await app.queues.pause(await _a_queue(app, twin))
    return twin


async def _a_schedule(app: App, twin: str) -> str:
    await app.schedules.add(twin, "0 3 * * *", "hello", {"name": "x"})
    return twin


async def _a_paused_schedule(app: App, twin: str) -> str:
    await app.schedules.pause(await _a_schedule(app, twin))
    return twin


async def _a_limit(app: App, twin: str) -> str:
    await app.limits.set(twin, "5/m", burst=3)
    return twin


async def _a_lock(app: App, twin: str) -> str:
    await app.lock(twin, ttl="10m", owner="ann").acquire()
    return twin


async def _a_job(app: App, twin: str) -> str:
    return (await app.enqueue("hello", {"name": "x"}, queue=twin)).id


async def _an_ended_job(app: App, twin: str) -> str:
    id = await _a_job(app, twin)
    await app.jobs.cancel(id)
    return id


async def _nothing(app: App, twin: str) -> str:
    return twin


WHEN = {"expression": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}
Case = tuple[str, Make, dict[str, str], Read]
CASES: dict[str, Case] = {
    "pause": ("/queues/{it}/pause", _a_queue, {"reason": HOSTILE, "until": "2h"}, _queue),
    "pause for good": ("/queues/{it}/pause", _a_queue, {}, _queue),
    "resume": ("/queues/{it}/resume", _a_paused_queue, {}, _queue),
    "end a cool-down": ("/queues/{it}/warm", _a_queue, {}, _queue),
    "scale": ("/queues/{it}/scale", _a_queue, {"max_workers": "7"}, _queue),
    "scale to none": ("/queues/{it}/scale", _a_queue, {"max_workers": ""}, _queue),
    "settings": (
        "/queues/{it}/settings",
        _a_queue,
        {"rate": "", "keep_failed": "forever", "max_workers": "3"},
        _queue,
    ),
    "pause a schedule": ("/schedules/{it}/pause", _a_schedule, {"reason": HOSTILE}, _schedule),
    "resume a schedule": ("/schedules/{it}/resume", _a_paused_schedule, {}, _schedule),
    "fire": ("/schedules/{it}/fire", _a_schedule, {}, _schedule),
    "remove a schedule": ("/schedules/{it}/remove", _a_schedule, {}, _schedule),
    "edit a schedule": (
        "/schedules/{it}/edit",
        _a_schedule,
        {**WHEN, "args": '{"name": "it\'s"}', "priority": "-5", "jitter": "5m", "misfire": "skip", "overlap": "skip"},
        _schedule,
    ),
    "add a schedule": (
        "/schedules-new",
        _nothing,
        {**WHEN, "name": "{it}", "task": "hello", "args": '{"name": "-x"}', "queue": "q", "jitter": "90"},
        _schedule,
    ),
    "add a limit": ("/limits/set", _nothing, {"name": "{it}", "rate": "100/m", "burst": "20"}, _limit),
    "change a limit": ("/limits/set?name={it}", _a_limit, {"rate": "9/s"}, _limit),
    "remove a limit": ("/limits/remove?name={it}", _a_limit, {}, _limit),
    "free a lock": ("/locks/free?name={it}", _a_lock, {}, _lock),
    "cancel": ("/jobs/{it}/cancel", _a_job, {}, _job),
    "delete": ("/jobs/{it}/delete", _an_ended_job, {}, _job),
    "reschedule": ("/jobs/{it}/reschedule", _a_job, {"delay": "2h"}, _job),
    "reschedule at": ("/jobs/{it}/reschedule", _a_job, {"at": "2099-11-15T09:00+01:00"}, _job),
    "priority": ("/jobs/{it}/priority", _a_job, {"priority": "-7"}, _job),
    "move": ("/jobs/{it}/move", _a_job, {"queue": "bulk"}, _job),
    "enqueue": (
        "/enqueue?task=hello&json=1",
        _nothing,
        {"task": "hello", "args": '{"name": "it\'s"}', "tags": "{it}", "delay": "1h"},
        _newest,
    ),
    "enqueue by the form": (
        "/enqueue?task=hello",
        _nothing,
        {"arg-name": "42", "tags": "{it}, z z", "priority": "-3", "queue": "q", "reason": HOSTILE},
        _newest,
    ),
    "enqueue hostile text": (
        "/enqueue?task=hello",
        _nothing,
        {"arg-name": HOSTILE, "arg-times": "2", "tags": "{it}"},
        _newest,
    ),
    "cancel many": ("/operations/new?act=cancel&filter=queue:{it}", _a_queue, {"reason": HOSTILE}, _queue),
    "cancel all but some": ("/operations/new?act=cancel&filter=-task:x queue:{it}", _a_queue, {}, _queue),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_command_does_what_the_form_does(world: World, tmp_path: Path, name: str) -> None:
    path, make, typed, read = CASES[name]
    app = world.app
    subjects = [await make(app, twin) for twin in TWINS]
    forms: list[Form] = []
    for it in subjects:
        form = await form_at(world, path.replace("{it}", it))
        form.fill({key: value.replace("{it}", it) for key, value in typed.items()})
        forms.append(form)
    await send(world, forms[0])
    await run(world, forms[1].line, tmp_path)
    await _over(app)
    left, right = [await read(app, it) for it in subjects]
    assert _named(left, subjects[0]) == _named(right, subjects[1]), forms[1].line


def _named(found: Any, subject: str) -> str:
    """With the name of its twin left out."""
    return repr(found).replace(subject, "{it}").replace("'left'", "'{it}'").replace("'right'", "'{it}'")


async def _over(app: App) -> None:
    """Operations go on behind a form's back."""
    async with asyncio.timeout(30):
        while not all(each.is_over for each in await app.operations.list(limit=5)):
            await asyncio.sleep(0.02)


async def test_many_jobs_are_changed_by_the_same_command(world: World, tmp_path: Path) -> None:
    """Of the acts upon many jobs, those that need to be told something."""
    for act, typed, line in (
        ("move", {"queue": "bulk"}, "--to bulk"),
        ("priority", {"priority": "50"}, "--to 50"),
        ("reschedule", {"delay": "2h"}, "--delay 2h"),
        ("reschedule", {}, "--now"),
        ("revive", {"reason": "it's"}, """--reason 'it'"'"'s'"""),
    ):
        await world.app.enqueue("hello", {"name": "x"}, queue="many")
        form = await form_at(world, f"/operations/new?act={act}&filter=queue:many")
        form.fill(typed)
        assert form.line == f"treadle jobs {act} queue:many {line}"
        assert parsed(form.line).params["which"] == ("queue:many",)
    every = await form_at(world, "/operations/new?act=cancel&all=*")
    assert every.line == "treadle jobs cancel --all"
    assert parsed(every.line).params["everything"] is True


async def test_a_waiting_job_is_answered_by_the_same_command(world: World, tmp_path: Path) -> None:
    app = world.app

    @app.task(name="waits", retry=1)
    async def waits(ctx: Context[Any]) -> Any:
        if ctx.has_answer:
            return await ctx.answer()
        raise Wait(await ctx.answer_token("1h"))

    asked = [(await app.enqueue("waits")).id for _ in range(4)]
    async with app.worker(label="pod-1"), asyncio.timeout(30):
        while {(await app.jobs.get(id)).state for id in asked} != {"waiting"}:
            await asyncio.sleep(0.02)
        form = await form_at(world, f"/jobs/{asked[0]}/answer")
        form.fill({"value": '{"paid": "it\'s"}'})
        await send(world, form)
        other = await form_at(world, f"/jobs/{asked[1]}/answer")
        other.fill({"value": "-5"})
        await run(world, other.line, tmp_path)
        failed = await form_at(world, f"/jobs/{asked[2]}/fail")
        failed.fill({"error": HOSTILE})
        await send(world, failed)
        same = await form_at(world, f"/jobs/{asked[3]}/fail")
        same.fill({"error": HOSTILE})
        await run(world, same.line, tmp_path)
        for id in asked:
            with contextlib.suppress(Exception):
                await app.client.wait_for_end(id, 20)
        found = [await app.jobs.get(id) for id in asked]
    assert [each.result for each in found[:2]] == [{"paid": "it's"}, -5]
    assert found[2].error is not None and found[3].error is not None
    assert found[2].error.message == found[3].error.message and "rm -rf" in found[2].error.message


async def test_pods_and_mutes_have_commands_that_are_taken(world: World) -> None:
    pod = a_pod(label="web-1's", queues={"default": 1})
    await world.app.storage.register(pod)
    for act, verb in (("quiet", "quiet"), ("serve", "resume"), ("stop", "stop")):
        form = await form_at(world, f"/pods/{pod.id}/{act}")
        ctx = parsed(form.line)
        assert (ctx.info_name, ctx.params["pod"]) == (verb, "web-1's")
    form = await form_at(world, "/failures/mute?cause=shop.x:It's:shop.y:z")
    form.fill({"until": "2h", "reason": HOSTILE})
    params = parsed(form.line).params
    assert (params["cause"], params["reason"]) == ("shop.x:It's:shop.y:z", HOSTILE)
    assert params["until"] is not None


async def test_every_question_with_a_command_is_in_this_file() -> None:
    """A page that asks, and that nobody tests, is found by its source."""
    pages = Path(__file__).parents[2] / "src" / "treadle" / "web" / "pages"
    heads = {
        head
        for path in pages.glob("*.py")
        for head in re.findall(r'command\(\s*f?"(treadle [a-z{}._ -]+)"', path.read_text())
    }
    assert heads == {
        "treadle queues pause", "treadle queues resume", "treadle queues set --warm", "treadle queues scale",
        "treadle queues set", "treadle schedules pause", "treadle schedules resume", "treadle schedules fire",
        "treadle schedules remove", "treadle schedules add", "treadle schedules set", "treadle limits set",
        "treadle limits remove", "treadle locks free", "treadle jobs cancel", "treadle jobs delete",
        "treadle jobs reschedule", "treadle jobs priority", "treadle jobs move", "treadle jobs answer",
        "treadle jobs mute", "treadle jobs failures", "treadle jobs {asked.act} --all", "treadle jobs {asked.act}",
        "treadle enqueue", "treadle pods quiet", "treadle pods resume", "treadle pods stop",
    }  # fmt: skip


async def test_the_command_of_the_failures_page_is_quoted(world: World) -> None:
    page = (await world.http.get("/failures?task=x%27;reboot", headers=ADMIN)).text
    copied = re.findall(r'data-copy="([^"]*)"', page)
    assert "treadle jobs failures --task &#39;x&#39;&#34;&#39;&#34;&#39;;reboot&#39;" in copied


async def test_masked_values_and_missing_ones_cannot_be_copied(world: World) -> None:
    made = await world.app.enqueue("unknown.task", {"password": "secret"})
    page = (await world.http.get(f"/enqueue?like={made.id}", headers=ADMIN)).text
    assert re.search(r'aria-label="Copy the command" disabled', page)
    await world.app.enqueue("hello", {"name": "x"}, queue="left")
    page = (await world.http.get("/queues/left/settings", headers=ADMIN)).text
    assert "treadle queues set left …" in page and 'aria-label="Copy the command" disabled' in page
    page = (await world.http.get("/queues/left/pause", headers=ADMIN)).text
    assert 'aria-label="Copy the command" disabled' not in page
