"""`treadle db copy`: everything, once, as it was; again after a kill; and never under somebody's feet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests import postgres_server
from treadle import App
from treadle.cli.output import Output
from treadle.core import answer as answering
from treadle.core import filter as filters
from treadle.core import firing, lifecycle, operation
from treadle.core import schedule as scheduling
from treadle.core.answer import NewAnswer
from treadle.core.event import Event
from treadle.core.job import QueueChange
from treadle.core.limit import Take
from treadle.core.logline import LogLine
from treadle.core.mute import Mute
from treadle.core.outcome import Snoozed, Succeeded, Throttled
from treadle.core.pod import Descriptor
from treadle.core.progress import Progress, Report
from treadle.core.reading import Reading
from treadle.core.record import Record, differing, returned
from treadle.core.rollup import MINUTE, Rollup
from treadle.core.schedule import Plan
from treadle.ports import Query, Storage
from treadle.runtime.services.operator import work
from treadle.storages.postgres import copy as postgres_copy
from treadle.storages.sqlite import copy as sqlite_copy
from treadle.testing.conformance.builders import a_job, a_pod, a_token, a_unique_job, an_id, failing, finished, want

from .conftest import Store, Treadle

T = TypeVar("T")

DYING = """
import asyncio, os, signal, sys
from treadle.cli import root
from treadle.storages.postgres.copy import Copying

whole, when, pages = Copying.load, sys.argv.pop(1), []

async def load(self, kind, records):
    pages.append(kind)
    if pages.count("job") < 3:
        return await whole(self, kind, records)
    writing = asyncio.create_task(whole(self, kind, records))
    await (asyncio.sleep(0.003) if when == "within" else writing)
    os.kill(os.getpid(), signal.SIGKILL)

Copying.load = load
root.main()
"""


@pytest.fixture
def postgres(folder: Path) -> str:
    """The URL of an empty schema."""
    os.environ["TREADLE_SCHEMA"] = postgres_server.a_schema()
    return postgres_server.shared_url()


def on(url: str, work: Callable[[Storage], Coroutine[Any, Any, T]]) -> T:
    async def whole() -> T:
        async with App(url) as app:
            return await work(app.storage)

    return asyncio.run(whole())


async def dumped(storage: Storage) -> dict[str, dict[str, Record]]:
    """Every record of every kind, by its name."""
    found: dict[str, dict[str, Record]] = {}
    for kind in storage.kinds():
        cursor = None
        found[kind] = {}
        while True:
            page = await storage.dump(kind, cursor, 1000)
            assert not page.damaged
            found[kind] |= {_name(record): record for record in page.records}
            cursor = page.next
            if cursor is None:
                break
    return found


def _name(record: Record) -> str:
    return str(record.get("id") or record.get("name") or record.get("key") or list(record.values()))


async def fill(storage: Storage, count: int) -> None:
    """Jobs of all kinds: every state, with errors, tags, keys held and free, results, meta, counts and odd texts."""
    about = {"task work": Descriptor(description="does it", owner="me")}
    card = a_pod(lease=0.05, queues={"mail": 10, "bulk": 10}, tasks=("work", "other"), about=about)
    await storage.register(card)
    odd = 'a "quote", a \\ and ünïcode ☃ \U0001f409 {[,'
    for n in range(0, count, 50):
        jobs = [
            a_job(queue="mail" if i % 2 else "bulk", task="work" if i % 3 else "other", priority=i % 7 - 3,
                  args=json.dumps({"n": n + i, "text": odd}), tags=(f"t{i % 5}", odd) if i % 4 == 0 else (),
                  meta='{"trace":"x"}' if i % 6 == 0 else None, reason=odd if i % 9 == 0 else None,
                  max_attempts=5 if i % 8 == 0 else None, timeout=7.5 if i % 10 == 0 else None, pinned=i % 10 == 0)
            for i in range(30)
        ]  # fmt: skip
        jobs += [a_job(queue="bulk", delay=3600.0 + i, args=json.dumps(i / 3)) for i in range(10)]
        jobs += [a_unique_job(f"live {n + i}", queue="keyed", delay=60.0) for i in range(5)]
        held = [
            a_unique_job(f"done {n + i}", queue="mail", task="work", include_succeeded=True, period=9e6)
            for i in range(5)
        ]
        await storage.insert([*jobs, *held])
        await storage.beat(card.id, 5.0, [])
        token = a_token()
        taken = await storage.claim(card.id, token, [want("mail", 10, ("work", "other")), want("bulk", 8, ("work",))])
        outcomes = [
            Succeeded('{"r":[1,null]}'), failing(after=100.0, message=odd), failing(final=True, trace="t" * 300),
            Snoozed(500.0), Succeeded(None), Throttled(0.0), failing(after=0.0),
        ]  # fmt: skip
        await storage.report(
            [
                Report(id=job.id, token=token, attempt=1, progress=Progress(done=0.1, note=odd), checkpoint='{"p":1.5}')
                for job in taken.jobs[:3]
            ]
        )
        await storage.record_logs([LogLine(taken.jobs[0].id, 1_700_000_000_123_456 + n, 1, "info", odd)])
        kept = taken.jobs[:-2]  # the last ones are left running
        await storage.apply([finished(job, outcomes[i % len(outcomes)]) for i, job in enumerate(kept)])
        await storage.apply([QueueChange(name=name, cool_until=None) for name in ("mail", "bulk")])
        cancelled = [lifecycle.cancel(job) for job in await storage.get([jobs[0].id, jobs[31].id, taken.jobs[-1].id])]
        await storage.apply([change for change in cancelled if change is not None])
    await storage.apply(
        [QueueChange(name="mail", paused=True, paused_by="me", pause_reason=odd, max_workers=4, rate=2.5, timeout=9.0)]
    )
    await storage.beat(card.id, 0.001, [])
    await asyncio.sleep(0.01)  # the lease is over


async def fill_the_rest(storage: Storage) -> None:
    """One of everything else that a storage keeps."""
    now = await storage.time()
    plan = scheduling.check(Plan(expression="0 * * * *", task="work", queue="mail", zone="Asia/Kathmandu", tags=("a",)))
    for name, since in (("hourly", now - 7200), ("idle", now)):
        assert await storage.save_schedule(scheduling.add(name, plan, since).schedule, 0)
    now, (hourly, _) = await storage.schedules()
    due = firing.due(hourly, now)
    assert due is not None
    await storage.fire(firing.fire(hourly, due))
    await storage.save_limit("slack", 5, 2.0)
    await storage.take([Take(scope="slack", want=3)])
    assert await storage.save_operation(operation.new(an_id(), "revive", "state:failed", by="ann", reason="why"), None)
    last = a_job(delay=9.0)
    await storage.insert([last])
    await storage.record([Event(id=a_token(), job=last.id, what="snoozed")])
    await storage.roll_up([Rollup(resolution=MINUTE, at=600.0, queue="mail", task="work", pod="p")])
    await storage.roll_up([Reading(resolution=MINUTE, at=600.0, pod="p")])
    (running,) = (await storage.find(Query(filter=filters.parse("state:running"), limit=1))).jobs
    assert await storage.open_answer(NewAnswer(id=answering.id_of("token"), job=running.id, claim=running.token or ""))
    await storage.mute(Mute(cause="work:ValueError:shop:work", who="ann"))
    pod = a_pod(worker_version="2026.11.3")
    await storage.register(pod)
    await storage.sign_off(pod.id)
    for n in range(3):
        await storage.free("lock", (await storage.seize("lock", f"owner {n}", 10.0)).owner)


async def the_rest(storage: Storage) -> dict[str, Any]:
    """What people would see of it."""
    _, schedules = await storage.schedules()
    return {
        "schedules": sorted(schedules, key=lambda each: each.name),
        "fires": list(await storage.fires("hourly")),
        "limits": [(each.scope, each.capacity, each.refill, each.version) for each in await storage.limits()],
        "operations": list(await storage.operations()),
        "audit": list(await storage.audit()),
        "rollups": list(await storage.rollups(MINUTE, 0.0)),
        "deploys": list(await storage.deploys()),
    }


def compared(here: dict[str, dict[str, Record]], there: dict[str, dict[str, Record]]) -> None:
    for kind, rows in here.items():
        assert rows.keys() == there[kind].keys(), kind
        for name, record in rows.items():
            expected = returned(record) if kind == "job" else record
            assert differing(expected, there[kind][name]) == [], (kind, name)
            assert expected.get("seq") == there[kind][name].get("seq")


def test_from_sqlite_to_postgres_and_back(treadle: Treadle, folder: Path, url: str, postgres: str) -> None:
    on(url, lambda storage: fill(storage, 5_000))
    on(url, fill_the_rest)  # two more jobs, one of them fired by a schedule
    here = on(url, dumped)
    assert [kind for kind, rows in here.items() if not rows] == []
    states = {record["state"] for record in here["job"].values()}
    assert states == {"ready", "running", "succeeded", "failed", "cancelled"}
    assert len(here["job"]) == 5_002
    assert here["held"]
    before = (folder / "treadle.db").read_bytes()
    there = treadle("db", "copy", url, postgres, "--json")
    assert there.code == 0, there.object["problems"]
    assert there.object["jobs"]["source"] == there.object["jobs"]["target"]
    assert sum(there.object["jobs"]["target"].values()) == there.object["rows"]["job"]["written"] == 5_002
    assert there.object["returned"] == sum(record["state"] == "running" for record in here["job"].values()) > 0
    compared(here, on(postgres, dumped))
    assert on(postgres, the_rest) == on(url, the_rest)
    assert on(postgres, lambda storage: storage.seize("lock", "me", 1.0)).fence == 4  # none comes again
    back = f"sqlite:///{folder}/back.db"
    ran = treadle("db", "copy", postgres, back, "--json")
    assert ran.code == 0, ran.object["problems"]
    there_and_back = on(back, dumped)
    here["fence"], there_and_back["fence"] = {}, {}
    compared(here, there_and_back)
    assert on(back, the_rest) == on(url, the_rest)
    assert (folder / "treadle.db").read_bytes() == before  # nothing is written to the source
    again = treadle("db", "copy", url, postgres, "--json")
    assert again.code == 0
    assert again.object["rows"]["job"] == {"same": 5_002}


def test_an_operation_goes_on_in_the_other_storage(treadle: Treadle, url: str, postgres: str) -> None:
    """How far it had come is said in the words of one storage, and means nothing to the other."""
    for _ in range(5):
        Store(url).enqueue(queue="mail")

    async def begin(storage: Storage) -> str:
        saved = await storage.save_operation(operation.new(an_id(), "cancel", "queue:mail"), None)
        assert saved is not None
        assert await work(storage, saved, 2)
        return saved.id

    id = on(url, begin)
    assert treadle("db", "copy", url, postgres, "--json").code == 0
    assert treadle("db", "copy", url, postgres, "--json").code == 0  # again, it is the same
    done = treadle("operations", "resume", id, "--json", "--url", postgres).object
    assert (done["state"], done["changed"]) == ("finished", 5)


def test_jobs_go_on_where_they_were(treadle: Treadle, folder: Path, url: str, postgres: str) -> None:
    ids = [Store(url).enqueue(queue="mail") for _ in range(3)]
    last = Store(url).failed()  # which ends the first in the queue
    assert treadle("db", "copy", url, postgres).code == 0

    async def claim(storage: Storage) -> list[str]:
        card = a_pod(queues={"mail": 10}, tasks=("shop.welcome",))
        await storage.register(card)
        found = await storage.claim(card.id, a_token(), [want("mail", 10, ("shop.welcome",))])
        await storage.apply([finished(job, Succeeded()) for job in found.jobs])
        return [job.id for job in found.jobs]

    assert on(postgres, claim) == [*ids[1:], last]
    newer = Store(postgres).enqueue(queue="mail")
    assert Store(postgres).state(newer) == "ready"


@pytest.mark.parametrize("when", ["after", "within"])
def test_a_copy_that_was_killed_is_completed_by_the_next(treadle: Treadle, url: str, postgres: str, when: str) -> None:
    on(url, lambda storage: fill(storage, 2_500))
    line = [sys.executable, "-c", DYING, when, "db", "copy", url, postgres]
    root = Path(__file__).parents[2]
    killed = subprocess.run(line, env={**os.environ, "PYTHONPATH": str(root / "src")}, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    ran = treadle("db", "copy", url, postgres, "--json")
    assert ran.code == 0, ran.object["problems"]
    counts = ran.object["rows"]["job"]
    assert counts["same"] >= 1_000
    assert counts["same"] + counts["written"] == 2_500
    compared(on(url, dumped), on(postgres, dumped))


def test_live_workers_on_either_side_refuse_it(treadle: Treadle, store: Store, url: str, folder: Path) -> None:
    other = f"sqlite:///{folder}/other.db"
    store.running(lease=30.0)
    ran = treadle("db", "copy", url, other)
    assert ran.code == 78
    assert "workers live on" in ran.err
    assert "pod1 (its lease ends in" in ran.err
    empty = Store(f"sqlite:///{folder}/empty.db")
    empty.enqueue()
    assert treadle("db", "copy", empty.url, url).code == 78
    assert not on(other, lambda storage: storage.get([]))


def test_a_running_job_whose_worker_is_gone_is_ready_again(
    treadle: Treadle, store: Store, url: str, folder: Path
) -> None:
    id = store.running()
    with sqlite3.connect(folder / "treadle.db") as db:
        db.execute("update treadle_pod set lease_until = 0")
    db.close()
    other = f"sqlite:///{folder}/other.db"
    ran = treadle("db", "copy", url, other, "--json")
    assert (ran.code, ran.object["returned"]) == (0, 1)
    job = Store(other).run(lambda app: app.jobs.get(id))
    assert (job.state, job.attempt, job.pod) == ("ready", 0, None)
    assert store.state(id) == "running"


def test_a_target_with_jobs_of_its_own_is_refused_unless_asked(
    treadle: Treadle, store: Store, url: str, folder: Path
) -> None:
    mine = [store.enqueue() for _ in range(3)]
    other = Store(f"sqlite:///{folder}/other.db")
    theirs = [other.enqueue() for _ in range(2)]
    ran = treadle("db", "copy", url, other.url)
    assert ran.code == 78
    assert "--into-nonempty" in ran.err
    ran = treadle("db", "copy", url, other.url, "--into-nonempty", "--json")
    assert ran.code == 0, ran.object["problems"]
    assert ran.object["jobs"] == {"source": {"ready": 3}, "target": {"ready": 5}, "before": {"ready": 2}}
    order = sorted(on(other.url, dumped)["job"].values(), key=lambda record: record["seq"])
    assert [record["id"] for record in order] == theirs + mine


def test_a_job_that_is_there_with_other_values_is_told_and_left(
    treadle: Treadle, store: Store, url: str, folder: Path
) -> None:
    id = store.enqueue(args={"user_id": 1})
    other = f"sqlite:///{folder}/other.db"
    assert treadle("db", "copy", url, other).code == 0
    with sqlite3.connect(folder / "other.db") as db:
        db.execute("update treadle_job set args = '{}'")
    db.close()
    ran = treadle("db", "copy", url, other, "--json")
    assert ran.code == 1
    assert ran.object["problems"] == [f"job {id} is there with other values (args)"]
    assert on(other, dumped)["job"][id]["args"] == "{}"


def test_a_job_that_vanishes_meanwhile_is_noticed(
    treadle: Treadle, store: Store, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof is the count at the end, not the belief that every row was written."""
    store.enqueue()
    whole = sqlite_copy.Copying.load

    async def forgetful(self: Any, kind: str, records: Any) -> Any:
        return await whole(self, kind, records) if kind != "job" else [sqlite_copy.Loaded("written")] * len(records)

    monkeypatch.setattr(sqlite_copy.Copying, "load", forgetful)
    ran = treadle("db", "copy", url, f"sqlite:///{folder}/other.db")
    assert ran.code == 1
    assert "the jobs differ" in ran.err


@pytest.mark.parametrize("late", ["worker", "job"])
def test_what_comes_to_the_source_meanwhile_is_noticed(
    treadle: Treadle, store: Store, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    store.enqueue()
    whole = sqlite_copy.Copying.load

    async def slow(self: Any, kind: str, records: Any) -> Any:
        if kind != "queue" and not done:
            done.append(kind)
            async with App(url) as app:
                await (app.storage.register(a_pod()) if late == "worker" else app.storage.insert([a_job()]))
        return await whole(self, kind, records)

    done: list[str] = []
    monkeypatch.setattr(sqlite_copy.Copying, "load", slow)
    ran = treadle("db", "copy", url, f"sqlite:///{folder}/other.db")
    assert done
    assert (ran.code, "workers live on" in ran.err, "the jobs differ" in ran.err) == (
        (78, True, False) if late == "worker" else (1, False, True)
    )
    if late == "job":
        assert treadle("db", "copy", url, f"sqlite:///{folder}/other.db").code == 0


def test_on_a_terminal_there_is_a_bar(
    treadle: Treadle, store: Store, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.enqueue()
    monkeypatch.setattr(Output, "shows_progress", True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    ran = treadle("db", "copy", url, f"sqlite:///{folder}/other.db")
    assert ran.code == 0
    assert ran.lines == ["jobs   source  target", "ready       1       1"]
    assert "1/1" in ran.err


def test_a_damaged_row_is_named_and_its_neighbours_are_copied(
    treadle: Treadle, store: Store, url: str, folder: Path
) -> None:
    bad, good = store.enqueue(), store.enqueue()
    with sqlite3.connect(folder / "treadle.db") as db:
        db.execute("update treadle_job set run_at = 'soon' where id = ?", (bad,))
    db.close()
    ran = treadle("db", "copy", url, f"sqlite:///{folder}/other.db", "--json")
    assert ran.code == 1
    assert ran.object["problems"] == [f"job {bad} cannot be read in {url}"]
    assert Store(f"sqlite:///{folder}/other.db").state(good) == "ready"


def test_what_cannot_be_copied_is_said_in_one_line(
    treadle: Treadle, store: Store, url: str, folder: Path, postgres: str
) -> None:
    store.enqueue()
    other = f"sqlite:///{folder}/other.db"
    for line, code, said in [
        ((url, url), 2, "same storage"),
        ((url, "memory://"), 78, "is lost when its process ends"),
        ((other, url), 5, "no such database"),
        ((postgres, url), 78, "has no Treadle tables"),
        ((url, other, "--url", url), 2, "leave --url out"),
    ]:
        ran = treadle("db", "copy", *line)
        assert (ran.code, len(ran.err.splitlines())) == (code, 1), ran.err
        assert said in ran.err
    assert not (folder / "other.db").exists()


def test_every_table_is_copied_or_known_to_stay() -> None:
    """A new table joins by its name; one that must not travel is named in APART (see `Storage.kinds`)."""
    assert set(sqlite_copy.kinds()) == set(postgres_copy.kinds())
    assert sqlite_copy.kinds()[:2] == postgres_copy.kinds()[:2] == ("queue", "job")
