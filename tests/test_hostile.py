"""Bad input and bad rows: what is refused stores nothing, what somebody damaged harms nobody, what is secret stays so.

The ids G1 to G12 are those of the list of faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from treadle import App, PayloadError, TreadleError
from treadle.cli import root
from treadle.cli.logs import JsonLines, TextLines
from treadle.config import SETTINGS, Timing
from treadle.core import filter as filters
from treadle.core.job import State
from treadle.core.pod import PodCard
from treadle.ports import Lane, Query, Want

pytestmark = pytest.mark.anyio

# So much quicker than the defaults that a beat, a scan and a rescue all fall into a test.
QUICK = Timing(
    lease=2.0, beat=0.2, scan=0.1, neighbours=0.1, poll=0.05, grace=2.0, cancel_grace=0.2, overdue=1.0, leader_ttl=0.6,
    leader_every=0.2, start_jitter=0.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TREADLE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def app(folder: Path) -> Any:
    async with App("sqlite:///treadle.db") as app:
        yield app


def treadle(*args: str) -> tuple[int, str, str]:
    """A command, as its exit code, what it printed and what it said. A traceback is never an answer."""
    ran = CliRunner().invoke(root, list(args))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, ran.stdout, ran.stderr


def rows_in(path: str = "treadle.db") -> int:
    if not Path(path).exists():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as db:
        try:
            return int(db.execute("select count(*) from treadle_job").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # not even a table


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


# G1-G10: at the door --------------------------------------------------------------------------------------------------

PAYLOADS: dict[str, Any] = {
    "G1 nan": float("nan"),
    "G1 infinity": float("inf"),
    "G1 nested": {"a": [1, {"b": float("-inf")}]},
    "G2 nul": "a\0b",
    "G2 nul in a key": {"a\0b": 1},
    "G2 nul nested": [{"x": ["\0"]}],
    "G3 lone surrogate": "\ud800",
    "G3 in a key": {"\udfff": 1},
    "G4 nesting": deep(101),
    "G4 contains itself": (lambda value: value.append(value) or value)([]),
    "G5 2^63": 2**63,
    "G5 -2^63-1": -(2**63) - 1,
    "G5 5,000 digits": 10**5000,
    "G6 10 MB": "x" * 10_000_000,
    "G6 many items": [0] * 1_000_000,
    "G7 keys that collide as text": {1: "a", "1": "b"},
    "G7 a key that is no text": {None: 1},
    "a set": {1, 2},
    "an object": object(),
}


@pytest.mark.parametrize("value", PAYLOADS.values(), ids=PAYLOADS)
async def test_an_argument_that_cannot_be_stored_is_refused_by_every_python_door(app: App, value: Any) -> None:
    @app.task(name="shop.note")
    async def note(value: Any) -> None: ...

    doors: list[Callable[[], Any]] = [
        lambda: note.enqueue(value),
        lambda: app.enqueue("shop.note", {"value": value}),
        lambda: app.enqueue("elsewhere.note", {"value": value}),
        lambda: app.enqueue_many([note.bind("fine"), note.bind(value)]),
    ]
    for door in doors:
        with pytest.raises(PayloadError) as refused:
            await door()
        assert refused.value.path.startswith("value"), str(refused.value)
        assert len(str(refused.value)) < 500
    with pytest.raises(PayloadError):
        note.enqueue_sync(value)
    assert rows_in() == 0


JSON_TEXTS: dict[str, str] = {
    "G1 NaN": "NaN",
    "G1 Infinity": "-Infinity",
    "G1 1e999": "1e999",
    "G1 nested": '[{"a": 1e999}]',
    "G2 nul": r'"a\u0000b"',
    "G2 nul in a key": r'{"a\u0000b": 1}',
    "G3 lone surrogate": r'"\ud800"',
    "G4 101 levels": "[" * 101 + "]" * 101,
    "G4 100,000 levels": "[" * 100_000,
    "G5 2^63": str(2**63),
    "G5 -2^63-1": str(-(2**63) - 1),
    "G5 5,000 digits": "9" * 5000,
    "G6 10 MB": '"' + "x" * 10_000_000 + '"',
    "G7 duplicate keys": '{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("text", JSON_TEXTS.values(), ids=JSON_TEXTS)
@pytest.mark.parametrize("shape", ['{{"value": {0}}}', "value={0}"], ids=["json", "name=value"])
def test_an_argument_that_cannot_be_stored_is_refused_by_the_command_line(shape: str, text: str) -> None:
    code, out, err = treadle("enqueue", "shop.note", shape.format(text))
    assert (code, out) == (2, ""), err
    (line,) = err.splitlines()
    assert line.startswith("treadle: ")
    assert len(line) < 500
    assert rows_in() == 0


def test_the_same_argument_twice_is_refused_by_the_command_line() -> None:
    assert treadle("enqueue", "shop.note", '{"a": 1, "a": 2}')[0] == 2
    assert treadle("enqueue", "shop.note", "a=1", "a=2")[0] == 2
    assert rows_in() == 0


def test_bytes_of_the_command_line_that_are_no_text_are_refused() -> None:
    """Python hands them over as lone surrogates."""
    line = [sys.executable.encode(), b"-m", b"treadle.cli", b"enqueue", b"shop.note", b"value=\xff\xfe"]
    ran = subprocess.run(line, capture_output=True)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert len(ran.stderr.splitlines()) == 1
    assert rows_in() == 0


BAD_NAMES: dict[str, str] = {
    "empty": "",
    "blank": " ",
    "10 kB": "a" * 10_000,
    "129": "a" * 129,
    "Cyrillic a": "m\u0430il",
    "full width": "\uff4dail",
    "path": "../etc",
    "slash": "a/b",
    "percent": "a%00b",
    "quote": 'a"b',
    "apostrophe": "a'; drop table treadle_job; --",
    "newline": "mail\n",
    "nul": "a\0b",
    "first": "-mail",
    "comma": "a,b",
    "surrogate": "a\ud800",
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
async def test_g8_a_name_outside_the_pattern_is_refused(app: App, name: str) -> None:
    @app.task(name="shop.note")
    async def note() -> None: ...

    attempts: list[Callable[[], Any]] = [
        lambda: note.using(queue=name).enqueue(),
        lambda: app.enqueue("shop.note", queue=name),
        lambda: app.enqueue(name),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="not allowed"):
            await attempt()
    for declare in (lambda: app.task(name=name or " ")(lambda: None), lambda: app.task(queue=name)(lambda: None)):
        with pytest.raises(TreadleError):
            declare()
    with pytest.raises(TreadleError):
        App("memory://", router={"": name})
    with pytest.raises(TreadleError):
        App("memory://", name=f"{name}/")
    with pytest.raises(TreadleError):
        async with app.worker([name]):
            pass
    assert rows_in() == 0


@pytest.mark.parametrize("name", [name for name in BAD_NAMES.values() if "\0" not in name and "\ud800" not in name])
def test_g8_a_name_outside_the_pattern_is_refused_by_the_command_line(name: str) -> None:
    for args in (("enqueue", name), ("enqueue", "shop.note", "--queue", name)):
        code, out, err = treadle(*args) if not name.startswith("-") else treadle("enqueue", "--", name)
        assert (code, out) == (2, "")
        (line,) = err.splitlines()
        assert line.startswith("treadle: ")
        assert len(line) < 400
    assert rows_in() == 0


@pytest.mark.parametrize("tag", ["", "x" * 101, "a\nb", "a\0b", "\ud800", 7])
async def test_g8_a_tag_that_cannot_be_kept_is_refused(app: App, tag: Any) -> None:
    with pytest.raises(ValueError, match="tag"):
        await app.enqueue("shop.note", tags=[tag])
    with pytest.raises(ValueError, match="at most 20"):
        await app.enqueue("shop.note", tags=[str(number) for number in range(21)])
    if isinstance(tag, str) and "\0" not in tag and "\ud800" not in tag:
        assert (await asyncio.to_thread(treadle, "enqueue", "shop.note", "--tag", tag))[0] == 2
    assert rows_in() == 0


BAD_TIMES: dict[str, dict[str, Any]] = {
    "naive": {"at": datetime(2030, 1, 1)},  # noqa: DTZ001
    "a number": {"at": -1},
    "nan": {"at": float("nan")},
    "text": {"at": "2030-01-01T00:00Z"},
    "delay nan": {"delay": float("nan")},
    "delay infinite": {"delay": float("inf")},
    "delay negative": {"delay": -1},
    "delay beyond a century": {"delay": 1e12},
    "delay text": {"delay": "soon"},
    "both": {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
}


@pytest.mark.parametrize("options", BAD_TIMES.values(), ids=BAD_TIMES)
async def test_g9_a_time_that_means_nothing_is_refused(app: App, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        await app.enqueue("shop.note", **options)
    assert rows_in() == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--at", "294277-01-01T00:00Z"),
        ("--at=-1",),
        ("--at", "2030-01-01T00:00"),
        ("--at", "NaN"),
        ("--at", ""),
        ("--delay", "nan"),
        ("--delay=-1",),
        ("--delay", "1e12"),
        ("--delay", "1000000000000"),
        ("--delay", "1", "--at", "2030-01-01T00:00Z"),
        ("--timeout", "0"),
    ],
    ids=str,
)
def test_g9_a_time_that_means_nothing_is_refused_by_the_command_line(options: tuple[str, ...]) -> None:
    code, out, err = treadle("enqueue", "shop.note", *options)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert rows_in() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101},
        {"priority": -101},
        {"priority": 2**31},
        {"priority": 1.5},
        {"priority": True},
        {"priority": "high"},
        {"max_attempts": 0},
        {"max_attempts": 1001},
        {"max_attempts": 2**31},
        {"max_attempts": -1},
    ],
    ids=str,
)
async def test_g10_a_number_out_of_range_is_refused_by_every_door(app: App, options: dict[str, Any]) -> None:
    @app.task(name="shop.note")
    async def note() -> None: ...

    for attempt in (lambda: note.using(**options).enqueue(), lambda: app.enqueue("elsewhere.note", **options)):
        with pytest.raises(ValueError, match="must be an integer from"):
            await attempt()
    (name, value) = next(iter(options.items()))
    code, out, err = await asyncio.to_thread(treadle, "enqueue", "shop.note", f"--{name.replace('_', '-')}={value}")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert rows_in() == 0


async def test_an_unknown_option_is_refused_by_every_door(app: App) -> None:
    with pytest.raises(TypeError, match="prioritty"):
        await app.enqueue("shop.note", prioritty=3)  # type: ignore[call-overload]
    code, out, err = await asyncio.to_thread(treadle, "enqueue", "shop.note", "--prioritty", "3")
    assert (code, out) == (2, "")
    assert "--priority" in err
    assert rows_in() == 0


# G12: behind our back -------------------------------------------------------------------------------------------------

NO_UTF8 = "cast(x'ff41fe' as text)"

# What becomes of the job whose row is damaged so. None: it is not told from a sound one, or nobody may touch it.
JOB_DAMAGE: dict[str, tuple[str, str | None]] = {
    "args no JSON": ("args = '{'", "undecodable"),
    "args empty": ("args = ''", "undecodable"),
    "args null": ("args = 'null'", "undecodable"),
    "args a list": ("args = '[1]'", "undecodable"),
    "args others": ("args = '{\"other\": 1}'", "undecodable"),
    "args deep": ("args = replace(hex(zeroblob(50000)), '0', '[')", "undecodable"),
    "args a blob": ("args = x'00ff'", "undecodable"),
    "args a number": ("args = x'31'", "undecodable"),
    "args no UTF-8": (f"args = {NO_UTF8}", "undecodable"),
    "priority text": ("priority = 'high'", "undecodable"),
    "priority real": ("priority = 1.5", "undecodable"),
    "priority blob": ("priority = x'ff'", "undecodable"),
    "priority no UTF-8": (f"priority = {NO_UTF8}", "undecodable"),
    "priority huge": ("priority = 9223372036854775807", None),
    "run_at text": ("run_at = 'soon'", "undecodable"),
    "run_at blob": ("run_at = x'ff'", "undecodable"),
    "run_at no UTF-8": (f"run_at = {NO_UTF8}", "undecodable"),
    "run_at long ago": ("run_at = -1e300", None),
    "created_at text": ("created_at = 'then'", "undecodable"),
    "created_at huge": ("created_at = 1e300", None),
    "attempt negative": ("attempt = -1000000", "undecodable"),
    "attempt huge": ("attempt = 9223372036854775807", "undecodable"),
    "attempt large": ("attempt = 4000000000", "undecodable"),
    "max_attempts text": ("max_attempts = 'many'", "undecodable"),
    "max_attempts negative": ("max_attempts = -5", "undecodable"),
    "timeout text": ("timeout = 'long'", "undecodable"),
    "timeout negative": ("timeout = -1.0", "undecodable"),
    "timeout infinite": ("timeout = 9e999", "undecodable"),
    "format text": ("format = 'json'", "undecodable"),
    "crashes text": ("crashes = 'three'", None),
    "crashes text beside others": ("crashes = 'three', reason = 'x'", "undecodable"),
    "crashes negative": ("crashes = -9", "undecodable"),
    "snoozes blob": ("snoozes = x'01', pinned = 1", "undecodable"),
    "error_count text": ("error_count = 'lots', reason = 'x'", "undecodable"),
    "cancel_wanted text": ("cancel_wanted = 'yes', reason = 'x'", "undecodable"),
    "reason a blob": ("reason = x'ff'", "undecodable"),
    "unique_key a blob": ("unique_key = x'ff'", "undecodable"),
    "reason no UTF-8": (f"reason = {NO_UTF8}", None),
    "tags no JSON": ("tags = 'vip'", None),
    "tags of numbers": ("tags = '[1, 2]'", None),
    "tags no UTF-8": (f"tags = {NO_UTF8}", None),
    "meta no JSON": ("meta = '{'", None),
    "meta a list": ("meta = '[1]'", None),
    "errors that nobody wrote": ("error_count = 7", None),
    "result no JSON": ("result = '{'", None),
    "warning with escapes": ("warning = char(27) || '[2J'", None),
    "finished before it began": ("finished_at = 1.0", None),
}

# Damage by which a row cannot be named or has no state of ours: it rests, and `doctor` names it.
NAMELESS: dict[str, str] = {
    "state unknown": "state = 'dancing'",
    "state a blob": "state = x'7265616479'",
    "state no UTF-8": f"state = {NO_UTF8}",
    "state spelt out": "state = 'scheduled'",
    "task a blob": "task = x'ff'",
    "queue a blob": "queue = x'ff'",
}


def damage(id: str, how: str, path: str = "treadle.db") -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as db:
        db.execute("begin immediate")
        assert db.execute(f"update treadle_job set {how} where id = ?", (id,)).rowcount == 1
        db.commit()


FILTERS = [
    "", "state:failed", "state:ready,scheduled", "-state:succeeded", "is:stuck", "is:retrying", "tag:vip", "error:x",
    "args.n:1", "meta.a:1", "age:>1h", "attempt:>1", "priority:>5", "due:<1h", "reason:x",
]  # fmt: skip


async def every_verb(app: App, pod: str = "looker") -> None:
    """Each verb that reads anything: none of them may raise because of a row."""
    storage = app.storage
    ids = [row.id for row in (await storage.find(Query(filter=filters.parse("")))).jobs]
    await storage.get(ids)
    for text in FILTERS:
        filter = filters.parse(text)
        for next_first in (False, True):
            page = await storage.find(Query(filter=filter, limit=2, next_first=next_first))
            seen = len(page.jobs)
            while page.next is not None:
                page = await storage.find(Query(filter=filter, limit=2, cursor=page.next, next_first=next_first))
                seen += len(page.jobs)
                assert seen < 1000, "a cursor that goes round in circles"
        await storage.count(filter)
    await storage.queues()
    await storage.pods()
    await storage.facts()
    await storage.failures()
    await storage.operations()
    await storage.audit()
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        await storage.prune(state, queue="nobody")
    await storage.sweep()
    await storage.abandoned(10, 0.0)
    card = PodCard(id=pod, label=pod, host="h", pid=1, version="0", queues={"other": 1}, tasks=("t",), lease=30.0)
    await storage.register(card)
    await storage.claim(pod, "looking", [Want("other", 1, (Lane(frozenset({"t"}), 1),))])
    await storage.recover(pod, "looking")
    await storage.beat(pod, 30.0, ())
    await storage.lead(pod, 1.0)
    await storage.sign_off(pod)
    for job in (await app.jobs.find("", limit=100)).jobs:
        await app.jobs.get(job.id)
    await app.queues.list()
    await app.pods.list()


def every_look() -> str:
    """What people type to see what is there. The answer is what `doctor` said."""
    for args in (("jobs", "find"), ("jobs", "find", "state:failed"), ("jobs", "find", "--limit", "500", "--json"),
                 ("queues", "list"), ("queues", "list", "--json"), ("pods", "list"), ("pods", "list", "--json"),
                 ("db", "status")):  # fmt: skip
        code, out, err = treadle(*args)
        assert code == 0, (args, err)
        assert "\x1b" not in out
    for line in treadle("jobs", "find", "--limit", "500", "--json")[1].splitlines():
        id = json.loads(line)["id"]
        for more in ((), ("--json",)):
            code, out, err = treadle("jobs", "show", id, *more)
            assert code == 0, err
            assert "\x1b" not in out
    code, out, _ = treadle("doctor")
    assert code in (0, 4)
    return out


def declare(app: App) -> Any:
    @app.task(name="shop.note", queue="mail")
    async def note(n: int) -> int:
        return n

    return note


async def ended(app: App, ids: list[str]) -> None:
    async with asyncio.timeout(20):
        for id in ids:
            while (await app.jobs.get(id)).state not in ("succeeded", "failed", "cancelled"):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(("how", "kind"), JOB_DAMAGE.values(), ids=JOB_DAMAGE)
async def test_g12_a_damaged_row_fails_alone_and_its_neighbours_run(app: App, how: str, kind: str | None) -> None:
    note = declare(app)
    handles = await app.enqueue_many([note.bind(n) for n in range(9)])
    odd, *good = [handles[4], *handles[:4], *handles[5:]]
    damage(odd.id, how)
    await every_verb(app)
    async with app.worker(["mail"], timing=QUICK) as pod:
        await ended(app, [handle.id for handle in handles])
        await asyncio.sleep(0.5)  # beats, scans, and whatever would spin
        assert pod.heart.may_claim()
        assert pod.turner.counts["errors"] == 0
        assert pod.turner.counts["claimed"] <= len(handles)
    assert {(await app.jobs.get(handle.id)).state for handle in good} == {"succeeded"}
    view = await app.jobs.get(odd.id)
    if kind is None:
        assert view.state == "succeeded"
    else:
        assert view.error is not None
        assert (view.state, view.error.kind) == ("failed", kind)
    await every_verb(app)
    assert await app.jobs.remove(odd.id) == "removed"


async def test_g12_people_can_look_and_every_sound_job_runs_while_all_the_others_are_damaged(app: App) -> None:
    note = declare(app)
    bad = await app.enqueue_many([note.bind(n) for n in range(len(JOB_DAMAGE))])
    good = await app.enqueue_many([note.bind(n) for n in range(50)])
    for handle, (how, _) in zip(bad, JOB_DAMAGE.values(), strict=True):
        if "unique_key" not in how:
            damage(handle.id, how)
    await every_verb(app)
    await asyncio.to_thread(every_look)
    async with app.worker(["mail"], timing=QUICK):
        await ended(app, [handle.id for handle in (*good, *bad)])
    for handle in good:
        assert (await app.jobs.get(handle.id)).state == "succeeded"
    await every_verb(app)
    await asyncio.to_thread(every_look)


@pytest.mark.parametrize("how", NAMELESS.values(), ids=NAMELESS)
async def test_g12_a_row_that_cannot_be_claimed_rests_and_doctor_names_it(app: App, how: str) -> None:
    note = declare(app)
    handles = await app.enqueue_many([note.bind(n) for n in range(5)])
    odd, *good = handles
    damage(odd.id, how)
    async with app.worker(["mail"], timing=QUICK) as pod:
        await ended(app, [handle.id for handle in good])
        await asyncio.sleep(0.3)
        assert pod.turner.counts["claimed"] == len(good)
    await every_verb(app)
    said = await asyncio.to_thread(every_look)
    assert f"the row of job {odd.id} (queue" in said
    with contextlib.closing(sqlite3.connect("treadle.db")) as db:
        assert db.execute("select attempt from treadle_job where id = ?", (odd.id,)).fetchone() == (0,)


async def test_g12_a_row_whose_id_is_damaged_does_not_run_round_and_round(app: App) -> None:
    note = declare(app)
    handles = await app.enqueue_many([note.bind(n) for n in range(3)])
    damage(handles[0].id, "id = x'ff'")
    async with app.worker(["mail"], timing=QUICK) as pod:
        await ended(app, [handle.id for handle in handles[1:]])
        await asyncio.sleep(0.5)
        assert pod.turner.counts["claimed"] == 2
    with contextlib.closing(sqlite3.connect("treadle.db")) as db:
        assert db.execute("select state from treadle_job where typeof(id) = 'blob'").fetchall() == [("failed",)]
    await every_verb(app)


@pytest.mark.parametrize("how", [how for how, kind in JOB_DAMAGE.values()], ids=JOB_DAMAGE)
async def test_g12_a_damaged_row_of_a_dead_pod_is_rescued_or_passed_over(app: App, how: str) -> None:
    """The same damage in rows that a dead pod has left running, one of them nameless."""
    note = declare(app)
    handles = await app.enqueue_many([note.bind(n) for n in range(4)])
    with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
        db.execute("update treadle_job set state = 'running', pod = 'gone', token = 't', attempt = 1, started_at = 1.0")
        db.execute("update treadle_job set id = x'ff' where id = ?", (handles[0].id,))
        db.execute(f"update treadle_job set {how} where id = ?", (handles[1].id,))
        db.commit()
    async with app.worker(["mail"], timing=QUICK) as pod:
        await ended(app, [handle.id for handle in handles[2:]])
        await asyncio.sleep(0.3)
        assert pod.heart.may_claim()
    assert {(await app.jobs.get(handle.id)).state for handle in handles[2:]} == {"succeeded"}
    await every_verb(app)


async def test_g12_rows_that_name_a_living_pod_as_their_owner_do_not_harm_it(app: App) -> None:
    note = declare(app)
    planted = await app.enqueue_many([note.using(queue="other").bind(n) for n in range(4)])
    async with app.worker(["mail"], timing=QUICK) as pod:
        with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
            for handle, token in zip(planted, ("null", "x'ff'", NO_UTF8, "'invented'"), strict=True):
                db.execute(
                    f"update treadle_job set state = 'running', pod = ?, token = {token} where id = ?",
                    (pod.id, handle.id),
                )
            db.execute("update treadle_job set id = x'00' where id = ?", (planted[0].id,))
            db.commit()
        await asyncio.sleep(1.0)
        assert pod.heart.may_claim()
        assert await (await note.enqueue(7)).result(timeout="10s") == 7
    await every_verb(app)


async def test_g12_ended_rows_may_hold_anything(app: App) -> None:
    note = declare(app)
    handles = await app.enqueue_many([note.bind(n) for n in range(len(JOB_DAMAGE))])
    with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
        db.execute("update treadle_job set state = 'failed', finished_at = 1.0, result = '[', error_count = 2")
        seqs = [seq for (seq,) in db.execute("select seq from treadle_job")]
        entries = ["", "{", "null", "[]", '{"attempt":"x"}', '{"attempt":1,"kind":"odd"}', b"\xff", 7,
                   '{"attempt":1,"kind":"error","started_at":1e300,"message":"\\u001b[2J"}']  # fmt: skip
        for number, seq in enumerate(seqs):
            entry = entries[number % len(entries)]
            db.execute("insert into treadle_job_error (seq, n, entry) values (?, 1, ?)", (seq, entry))
            db.execute(f"insert into treadle_job_error (seq, n, entry) values (?, 2, {NO_UTF8})", (seq,))
        for handle, (how, _) in zip(handles, JOB_DAMAGE.values(), strict=True):
            db.execute(f"update treadle_job set {how} where id = ?", (handle.id,))
        db.commit()
    await every_verb(app)
    await asyncio.to_thread(every_look)
    for handle in handles:
        await app.jobs.revive(handle.id)
    async with app.worker(["mail"], timing=QUICK):
        await ended(app, [handle.id for handle in handles])
    await every_verb(app)


CARDS = ["''", "'{'", "'[]'", "'{\"id\":7}'", "x'ff'", NO_UTF8, "7", '\'{"id":"../../etc/passwd"}\'']


async def test_g12_garbage_among_the_pods_keeps_nobody_from_starting_and_rescuing(app: App) -> None:
    note = declare(app)
    handles = await app.enqueue_many([note.bind(n) for n in range(4)])
    with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
        for number, card in enumerate(CARDS):
            for lease in ("1e18", "'long'", "x'00'", "-1.0"):
                db.execute(
                    "insert into treadle_pod (id, card, started_at, beat_at, lease_until, boot) "
                    f"values ('p{number}' || hex(randomblob(4)), {card}, 'then', 1e300, {lease}, 'b')"
                )
        into = "insert into treadle_pod (id, card, started_at, beat_at, lease_until, boot, lost) values"
        db.execute(f"{into} (x'ff', '{{', 1, 1, 1, x'ff', 'lost')")
        db.execute(f"{into} ({NO_UTF8}, '{{', 1, 1, 1, {NO_UTF8}, 0)")
        db.execute(f"{into} ('../../../tmp/x', '{{', 1, 1, 1, 'b', 0)")
        db.execute("update treadle_job set state = 'running', pod = 'p0', token = 't', attempt = 1, started_at = 1.0")
        db.commit()
    await every_verb(app)
    await asyncio.to_thread(every_look)
    async with app.worker(["mail"], timing=QUICK) as pod:
        await ended(app, [handle.id for handle in handles])
        assert pod.heart.may_claim()
    assert {(await app.jobs.get(handle.id)).state for handle in handles} == {"succeeded"}
    await every_verb(app)


QUEUE_DAMAGE = [
    "version = 'x'", "paused = 'yes'", "paused_until = 'never'", "max_workers = 'all'", "cool_until = 'later'",
    "cool_exponent = 'e'", "cool_exponent = 9223372036854775807", "cool_until = x'ff'", "paused_at = 1e300, paused = 0",
    f"pause_reason = {NO_UTF8}", "pause_reason = x'ff', paused_by = 7", "max_workers = -1000",
]  # fmt: skip


@pytest.mark.parametrize("how", QUEUE_DAMAGE)
async def test_g12_a_damaged_queue_is_read_and_can_be_set_right(app: App, how: str) -> None:
    note = declare(app)
    handle, other = await note.enqueue(1), await note.using(queue="other").enqueue(2)
    with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
        db.execute(f"update treadle_queue set {how} where name = 'mail'")
        db.execute("insert into treadle_queue (name) values (x'ff')")
        db.execute(f"insert into treadle_queue (name) values ({NO_UTF8})")
        db.commit()
    async with app.worker(["mail", "other"], timing=QUICK) as pod:
        assert await other.result(timeout="10s") == 2
        await every_verb(app)
        await asyncio.to_thread(every_look)
        assert pod.heart.may_claim()
        await app.queues.resume("mail")
        await app.queues.set("mail", max_workers=None)
        await app.queues.warm("mail")
        assert await handle.result(timeout="10s") == 1


async def test_g12_other_tables_may_hold_garbage_too(app: App) -> None:
    note = declare(app)
    with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
        db.execute(f"insert into treadle_job_tag values ({NO_UTF8}, 1), (x'ff', 'x'), ('vip', -5)")
        db.execute(f"insert into treadle_held values ('k', x'ff', 'long'), ({NO_UTF8}, {NO_UTF8}, 1e300)")
        db.execute("update treadle_leader set holder = x'ff', term = 'first', until = 1.0, boot = 7")
        db.commit()
    await every_verb(app)
    async with app.worker(["mail"], timing=QUICK):
        assert await (await note.using(tags=["vip"], unique="k").enqueue(1)).result(timeout="10s") == 1
    await asyncio.to_thread(every_look)


async def test_a_transaction_of_the_callers_meets_damaged_rows_too(app: App) -> None:
    note = declare(app)
    handle = await note.enqueue(1)
    damage(handle.id, f"reason = {NO_UTF8}, meta = x'ff', max_attempts = 'x'")
    with contextlib.closing(sqlite3.connect("treadle.db", timeout=10)) as db:
        db.execute("begin immediate")
        assert await app.jobs.cancel(handle.id, within=db) == "cancelled"
        db.commit()
    assert (await app.jobs.get(handle.id)).state == "cancelled"


async def test_what_is_read_from_a_damaged_row_is_never_in_an_error(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """sqlite3's own message would quote the text that it could not decode."""
    note = declare(app)
    caplog.set_level(logging.DEBUG)
    handle = await note.enqueue(1)
    damage(handle.id, "args = cast('canary' || x'ff' as text)")
    async with app.worker(["mail"], timing=QUICK):
        await ended(app, [handle.id])
    assert "canary" not in caplog.text
    assert "canary" not in str((await app.jobs.get(handle.id)).error)


# Secrets --------------------------------------------------------------------------------------------------------------

CANARY = "c4n4ry"

LEAKY = """
import asyncio, sys, time
from treadle import App, Context, Fail, Retry, RetryAfter
app = App()
CANARY = "c4n4" + "ry"

@app.on("succeeded")
def watch(job):
    raise RuntimeError(f"hook with password={job.args['password']} and {job.args}")

@app.task(name="ok", queue="q")
async def ok(ctx: Context, password: str, url: str) -> dict:
    return {"token": password, "url": url}

@app.task(name="unfit", queue="q")
async def unfit(number: int, *, when: "datetime.date") -> None: ...

@app.task(name="raises", queue="q", retry=Retry(max_attempts=2, base=0.01, jitter=0))
async def raises(kind: int) -> None:
    match kind:
        case 0: raise ValueError(f"login failed: password={CANARY}")
        case 1: raise RuntimeError(f"cannot reach https://ann:{CANARY}@far.side/path?x=1")
        case 2: raise Fail(f"authorization: Bearer {CANARY}")
        case 3: raise RetryAfter(0.01, f"api_key='{CANARY}'") if False else KeyError(f"api_key: {CANARY}")
        case 4: sys.exit(f"token={CANARY}")
        case 5:
            try: raise ValueError(f"secret={CANARY}")
            except ValueError as cause: raise RuntimeError("outer") from cause
        case 6: raise KeyboardInterrupt(f"cookie={CANARY}")
        case 7: raise asyncio.CancelledError(f"dsn=postgresql://u:{CANARY}@h/d")
        case 8: raise type(f"Odd", (Exception,), {"__str__": lambda self: 1 / 0})()
        case 9:
            class Local(Exception): ...
            error = Local("noted"); error.add_note(f"password={CANARY}"); raise error
        case 10: raise ExceptionGroup("several", [ValueError(f"passwd={CANARY}")])

@app.task(name="bad_result", queue="q")
async def bad_result(secret: str) -> object:
    return {secret, CANARY}

@app.task(name="blocks", queue="q")
async def blocks(secret: str) -> None:
    time.sleep(1.4)

@app.task(name="threads", queue="q", timeout=0.2, retry=1)
def threads(ctx: Context, secret: str) -> None:
    while not ctx.cancelled: time.sleep(0.01)
    raise ValueError(f"gave up; token={secret}")
"""


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_log_line_of_a_worker_holds_a_secret(folder: Path, format: str) -> None:
    (folder / "leaky.py").write_text(LEAKY)

    async def ask() -> None:
        async with App("sqlite:///treadle.db") as app:
            url = f"https://ann:{CANARY}@far.side"
            await app.enqueue("ok", {"password": CANARY, "url": url}, queue="q", reason="nothing secret")
            await app.enqueue("ok", {"password": CANARY}, queue="q")  # does not fit
            await app.enqueue("unfit", {"number": CANARY, "when": CANARY}, queue="q")
            for kind in range(11):
                await app.enqueue("raises", {"kind": kind}, queue="q", tags=["raises"])
            for task in ("bad_result", "blocks", "threads"):
                await app.enqueue(task, {"secret": CANARY}, queue="q")
            odd = await app.enqueue("ok", {"password": CANARY, "url": url}, queue="q")
            damage(odd.id, f"args = cast('{{\"password\": \"{CANARY}' || x'ff' as text)")

    asyncio.run(ask())
    line = [sys.executable, "-X", "dev", "-m", "treadle.cli", "worker", "-A", "leaky:app", "-q", "q:20", "--burst"]
    told = subprocess.run(
        [*line, "--log-level", "debug", "--log-format", format],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TREADLE_LOOP_LAG": "0.2"},
    )
    assert told.returncode == 0, told.stderr
    assert "blocked for" in told.stderr  # it did say something
    assert "hook" in told.stderr
    assert [each for each in (told.stdout + told.stderr).splitlines() if CANARY in each] == []
    jobs = [json.loads(each) for each in treadle("jobs", "find", "--limit", "500", "--json")[1].splitlines()]
    assert {job["state"] for job in jobs if job["task"] != "raises"} == {"succeeded", "failed"}
    for job in jobs:
        history = json.loads(treadle("jobs", "show", job["id"], "--json")[1])["errors"]
        assert CANARY not in json.dumps(history), job["task"]
        assert CANARY not in (job["warning"] or "")


@pytest.mark.parametrize(
    "args",
    [
        ("enqueue", "t", CANARY),
        ("enqueue", "t", "user=ann", CANARY),
        ("enqueue", "t", f'{{"password": "{CANARY}"'),
        ("enqueue", "t", f'{{"password": "{CANARY}", "n": 1e999}}'),
        ("enqueue", "t", f'["{CANARY}"]'),
        ("enqueue", "t", f'password="{CANARY}\\u0000"'),
        ("enqueue", "t", f"password={CANARY}", "password=again"),
        ("enqueue", "ok", "-A", "leaky:app", f"pasword={CANARY}"),
        ("enqueue", "ok", "-A", "leaky:app", f"password={CANARY}"),
        ("jobs", "find", "--url", f"postgresql://ann:{CANARY}@127.0.0.1:1/shop"),
        ("jobs", "find", "--url", f"mysql://ann:{CANARY}@db/shop"),
        ("jobs", "find", "--url", f"postgresql://ann:{CANARY}@[/shop"),
        ("jobs", "find", "--url", f"postgresql://h/d?password={CANARY}"),
        ("jobs", "find", "--url", f"sqlite:///none.db?token={CANARY}"),
        ("jobs", "find", "--url", CANARY),
        ("doctor", "--url", f"postgresql://ann:{CANARY}@127.0.0.1:1/shop"),
        ("doctor", "--json", "--url", f"postgresql://ann:{CANARY}@127.0.0.1:1/shop"),
        ("db", "status", "--url", f"postgresql://ann:{CANARY}@127.0.0.1:1/shop"),
        ("worker", "-q", "q", "-A", "leaky:app", "--url", f"mysql://ann:{CANARY}@db/shop"),
    ],
    ids=lambda args: " ".join(args).replace(CANARY, "X")[:70],
)
def test_no_error_of_the_command_line_holds_a_secret(folder: Path, args: tuple[str, ...]) -> None:
    (folder / "leaky.py").write_text(LEAKY)
    ran = subprocess.run(
        [sys.executable, "-m", "treadle.cli", *args],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "TREADLE_CALL": "0.4s"},  # nobody is at these addresses: how long to try is not the matter
    )
    assert ran.returncode in (2, 4, 5, 78), ran.stderr
    assert CANARY not in ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr


def test_no_setting_is_shown_with_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    App("sqlite:///treadle.db").open_sync()
    for setting in SETTINGS:
        if setting.name.endswith("url") and setting.name != "url":
            monkeypatch.setenv(setting.env, f"postgresql://ann:{CANARY}@db/shop")
    for args in (("doctor",), ("doctor", "--json")):
        assert CANARY not in "".join(map(str, treadle(*args)))


def test_a_failed_wait_shows_the_error_without_its_secret(folder: Path) -> None:
    (folder / "leaky.py").write_text(LEAKY)
    worker = subprocess.Popen([sys.executable, "-m", "treadle.cli", "worker", "-A", "leaky:app", "-q", "q"])
    try:
        line = ["enqueue", "raises", "kind=0", "-A", "leaky:app", "--max-attempts", "1", "--timeout-wait", "30s"]
        ran = subprocess.run([sys.executable, "-m", "treadle.cli", *line], capture_output=True, text=True, timeout=60)
    finally:
        worker.terminate()
        worker.wait(30)
    assert ran.returncode == 1
    assert "password=***" in ran.stderr
    assert CANARY not in ran.stdout + ran.stderr


# Files ----------------------------------------------------------------------------------------------------------------


def test_every_file_beside_the_database_is_for_its_owner_only(folder: Path) -> None:
    """With a umask that would let everybody in."""
    (folder / "leaky.py").write_text(LEAKY)
    script = "umask 000; {0} worker -A leaky:app -q q & worker=$!; sleep 2; {0} enqueue ok password=x url=y; {0} db backup copy.db; ls -laR >&2; stat -c '%a %n' treadle.db* treadle.db-treadle/.gitignore treadle.db-treadle/* treadle.db-treadle/pods/* copy.db; kill $worker; wait $worker"  # noqa: E501
    line = script.format(f"{sys.executable} -m treadle.cli")
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    modes = dict(reversed(each.split()) for each in ran.stdout.splitlines() if each.count(" ") == 1)
    ours = {f"treadle.db-treadle{name}" for name in ("", "/lock", "/ballast", "/pods", "/.gitignore")}
    assert {"treadle.db", "treadle.db-wal", "treadle.db-shm", "copy.db", *ours} <= modes.keys()
    assert {name: mode for name, mode in modes.items() if mode not in ("600", "700")} == {}, ran.stderr
    assert modes["treadle.db-treadle"] == modes["treadle.db-treadle/pods"] == "700"
    left = [path for path in folder.iterdir() if path.name.startswith("treadle.db")]
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in left)


LOOKS = [
    ("jobs", "find"),
    ("jobs", "find", "state:failed", "--json"),
    ("jobs", "show", "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"),
    ("jobs", "cancel", "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"),
    ("jobs", "cancel", "state:ready", "--yes"),
    ("jobs", "revive", "state:failed", "--dry-run"),
    ("jobs", "delete", "state:failed", "--yes"),
    ("jobs", "reschedule", "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11", "--now"),
    ("queues", "list"),
    ("queues", "show", "mail"),
    ("queues", "pause", "mail"),
    ("queues", "resume", "mail"),
    ("queues", "set", "mail", "--max-workers", "1"),
    ("pods", "list"),
    ("db", "status"),
    ("db", "backup", "copy.db"),
    ("doctor",),
    ("doctor", "--check", "--json"),
]


@pytest.mark.parametrize("args", LOOKS, ids=" ".join)
def test_who_only_looks_makes_no_database(folder: Path, args: tuple[str, ...]) -> None:
    code, _, err = treadle(*args)
    assert code == (4 if args[0] == "doctor" else 5), err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("args", LOOKS, ids=" ".join)
def test_who_only_looks_leaves_somebody_elses_database_alone(folder: Path, args: tuple[str, ...]) -> None:
    with contextlib.closing(sqlite3.connect("treadle.db")) as db:
        db.execute("create table orders (id integer primary key)")
        db.commit()
    before = Path("treadle.db").read_bytes()
    code, _, err = treadle(*args)
    assert code == (4 if args[0] == "doctor" else 5), err
    assert Path("treadle.db").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["treadle.db"]


@pytest.fixture(autouse=True, scope="module")
def apps_are_closed() -> Iterator[None]:
    yield
    for app in App.all():
        app.close_sync()


# What does not show itself ------------------------------------------------------------------------------------------

HIDDEN = "\x1b]0;title\x07\x1b[2J\x9b1m\u202efdp.exe\u2066\u200b\u2028\u0085\r\n019a,succeeded\U000e0041"


def is_shown(out: str) -> bool:
    """Whether nothing in what was printed moves the cursor, turns the text, or hides. Lines may end."""
    return all(line.isprintable() for line in out.replace("\r\n", "\n").split("\n"))


async def test_a_planted_row_moves_nothing_and_hides_nothing_wherever_it_is_printed(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="shop.note", queue="mail", retry=1)
    async def note(text: str) -> None:
        logging.getLogger("shop").warning("noted %s", text)
        raise ValueError(text)

    handle = await note.using(reason=HIDDEN, tags=["vip"]).enqueue(HIDDEN)
    with caplog.at_level(logging.INFO):
        async with app.worker(["mail"], timing=QUICK):
            await ended(app, [handle.id])
    # As somebody might write it who has no client: in the names, too.
    damage(handle.id, "unique_key = 'k' || char(0x202e) || char(27) || '[2J'")
    for form in (TextLines(), JsonLines()):
        for record in caplog.records:
            line = form.format(record)
            assert is_shown(line), line
            if isinstance(form, TextLines):
                assert all(each.startswith("    ") for each in line.split("\n")[1:]), line
    looks = [
        ("jobs", "find"), ("jobs", "find", "--csv"), ("jobs", "find", "--json"), ("jobs", "show", handle.id),
        ("jobs", "show", handle.id, "--json"), ("jobs", "logs", handle.id), ("jobs", "logs", handle.id, "--json"),
        ("jobs", "errors"), ("jobs", "explain", handle.id), ("top", "--once"), ("top", "--once", "--json"),
        ("jobs", "find", f"task:{HIDDEN}"), ("queues", "list"), ("doctor",),
    ]  # fmt: skip
    for args in looks:
        ran = await asyncio.to_thread(CliRunner().invoke, root, list(args))
        told = ran.stdout + ran.stderr
        assert ran.exit_code in (0, 2, 4), (args, told)
        # The frame of `top` is painted by rich, of plain text.
        assert is_shown(told), (
            args,
            [hex(ord(each)) for each in told if not each.isprintable() and each not in "\r\n"],
        )
    csv_text = (await asyncio.to_thread(CliRunner().invoke, root, ["jobs", "find", "--csv"])).stdout
    assert len(csv_text.splitlines()) == 2  # its head and one record: none was forged
    assert "\\u202efdp.exe" in csv_text
