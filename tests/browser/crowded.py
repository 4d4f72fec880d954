"""A system at its limits, for layouts: names as long as they may be, thirty queues, texts that turn their direction,
emoji, markup, and messages that never end. What no checked verb would take goes through the storage's port."""

from __future__ import annotations

import json

from treadle import App
from treadle.client.client import new_id
from treadle.core.audit import AuditLine
from treadle.core.firing import Fire
from treadle.core.histogram import Histogram
from treadle.core.job import Change, ErrorEntry, NewJob, QueueChange, State
from treadle.core.logline import LogLine
from treadle.core.operation import Operation
from treadle.core.pod import Descriptor, PodCard, PodStats
from treadle.core.progress import Progress, Report
from treadle.core.rollup import HOUR, MINUTE, Rollup
from treadle.core.schedule import Plan, Schedule
from treadle.ports import Lane, RunReport, Want

LONGEST = 128
TURNED = "\u202etxt.live\u202c \u2066isolated\u2069 \u200bhidden"
MARKUP = "<script>window.ran=1</script><img src=x onerror=window.ran=1>"
EMOJI = "👩‍🚀👨‍👩‍👧‍👦🏳️‍🌈❤️‍🔥👍🏽🇩🇪"
HEBREW = "שלום עולם, 123 (עברית)"
WORDS = f"{EMOJI} {TURNED} {HEBREW} {MARKUP} and then it goes on, word by word, for as long as somebody has patience. "


def name(what: str, end: str = "") -> str:
    """A name as people make them, as long as it may be."""
    made = f"{what}.europe-west1.customers.newsletters_and_campaigns.weekly_digest.send_to_everybody_who_asked_for_it"
    return (made + "_again" * 9)[: LONGEST - len(end)] + end


def solid(what: str) -> str:
    """A name in which no line can be broken."""
    return (what + "W" * LONGEST)[:LONGEST]


def message(size: int) -> str:
    return (WORDS * (size // len(WORDS) + 1))[:size]


TASK, OTHER_TASK, QUEUE, OTHER_QUEUE = name("task"), solid("task"), name("queue"), solid("queue")
SCHEDULE, LIMIT, POD, TAG = name("schedule"), solid("limit"), name("pod"), name("tag")[:100]
QUEUES = (QUEUE, OTHER_QUEUE, *(name(f"queue-{n}", f"-{n:02}") for n in range(26)), "mail", "a")


async def fill(app: App) -> dict[str, str]:
    """All of it. Answers with what pages are named by."""
    await app.open()
    found = {"queue": QUEUE, "task": TASK, "other_task": OTHER_TASK, "schedule": SCHEDULE, "limit": LIMIT}
    found["pod"] = await _pods(app)
    found |= await _jobs(app, found["pod"])
    await _around(app)
    found["operation"] = await _acts(app)
    await _history(app)
    return found


async def _pods(app: App) -> str:
    first = new_id()
    said = Descriptor(description=message(400), owner=WORDS)
    about = {f"queue {QUEUE}": said, f"task {TASK}": said}
    for n, id in enumerate((first, new_id(), new_id())):
        label = (POD, solid("pod"), f"{TURNED} {EMOJI}")[n]
        served = dict.fromkeys(QUEUES[: 20 if n else 2], 4)
        card = PodCard(
            id=id, label=label, host=name("host"), pid=4_194_304, version="0.1.0+build.20261118.abcdef0", queues=served,
            tasks=(TASK, OTHER_TASK), lease=3600, can_lead=False, about=about,
        )  # fmt: skip
        await app.storage.register(card)
        stats = PodStats(running={QUEUE: 2}, loop_lag=3.0, rss_bytes=987_654_321)
        await app.storage.beat(id, 3600, [], stats=stats)
    return first


async def _jobs(app: App, pod: str) -> dict[str, str]:
    payload = {"text": message(600), solid("key"): [TURNED, MARKUP, {"deep": name("value")}], "number": 12345678901234}
    made = [
        NewJob(
            id=new_id(), task=(TASK, OTHER_TASK)[n % 2], queue=QUEUES[n % 30 if n > 11 else 0],
            args=json.dumps(payload), meta=json.dumps({"tenant": name("tenant")}),
            tags=(TAG, TURNED[:60], EMOJI, MARKUP[:100]), reason=message(900), priority=100 - n, max_attempts=1000,
            delay=3600 if n % 5 == 4 else 0,
        )
        for n in range(60)
    ]  # fmt: skip
    await app.storage.insert(made)
    token = new_id()
    want = Want(QUEUE, 8, (Lane(frozenset({TASK, OTHER_TASK}), 8),))
    taken = [job.id for job in (await app.storage.claim(pod, token, [want])).jobs]
    assert len(taken) == 8, "the storage did not hand out what it was given"
    running = frozenset({State.RUNNING})
    trace = "Traceback (most recent call last):\n" + "".join(
        f'  File "/srv/{name("folder")}/shop.py", line {n}, in {solid("f")}\n    {message(300)}\n' for n in range(6)
    )
    ended: list[Change] = []
    for n, id in enumerate(taken[:4]):
        error = ErrorEntry(
            attempt=1, kind="error", type=(solid("Error"), "ValueError", name("Error"), MARKUP)[n],
            message=message(8000), trace=trace, place=f"{name('module')}:{n}", pod=pod,
        )  # fmt: skip
        ended.append(Change(id=id, why="failed", expect=running, token=token, to=State.FAILED, error=error))
    ended.append(
        Change(
            id=taken[4], why="succeeded", expect=running, token=token, to=State.SUCCEEDED,
            result=json.dumps(payload), warning=message(900),
        )
    )  # fmt: skip
    await app.storage.apply(ended)
    said = Progress(done=1_234_567, total=9_876_543, note=message(300), data=json.dumps(payload))
    await app.storage.report([Report(id=taken[5], token=token, attempt=1, progress=said)])
    await app.storage.beat(pod, 3600, [RunReport(id, token, name("slot")) for id in taken[5:]])
    lines = [LogLine(taken[5], 1, n, "warning" if n % 3 else "error", message(60 * n + 20)) for n in range(1, 30)]
    await app.storage.record_logs(lines)
    return {
        "failed": taken[0],
        "succeeded": taken[4],
        "running": taken[5],
        "ready": made[12].id,
        "scheduled": made[4].id,
    }


async def _around(app: App) -> None:
    """Paused queues, schedules, limits, locks."""
    storage = app.storage
    now = await storage.time()
    for each in (QUEUE, QUEUES[5], "mail"):
        pause = QueueChange(
            name=each, by=WORDS, paused=True, paused_by=name("operator"), pause_reason=message(700), audit=new_id()
        )
        await storage.apply([pause])
    for n, each in enumerate((SCHEDULE, solid("schedule"), "nightly")):
        plan = Plan(
            expression="every 1h" if n else "0,5,10,15,20,25,30,35,40,45,50,55 0-23/2 1-28 * MON-FRI", task=TASK,
            queue=QUEUE, args=json.dumps({"a": message(300)}), tags=(TAG,), paused=n == 0,
        )  # fmt: skip
        made = Schedule(
            name=each, version=1, plan=plan, anchor=now, created_at=now, edited_by=name("editor"),
            paused_by=name("operator") if n == 0 else None, paused_at=now if n == 0 else None,
            pause_reason=message(400) if n == 0 else None,
        )  # fmt: skip
        await storage.save_schedule(made, 0, cursor=now)
        if n == 1:
            await storage.fire(Fire(name=each, version=1, cursor=now, to=now, error=message(600)))
    await storage.save_limit(LIMIT, 1_000_000, 1_000_000.0)
    await storage.save_limit(name("limit"), 3, 0.000012345)
    await storage.seize(solid("lock"), name("owner"), 86_400)


async def _acts(app: App) -> str:
    lines = [
        AuditLine(
            id=new_id(), act=act, subject=subject, by=by, reason=message(300), detail=message(500)
        )
        for act, subject, by in (
            ("queues.set", QUEUE, name("operator")), ("refused", message(200), TURNED),
            ("jobs.revive", solid("s"), EMOJI),
        )
    ]  # fmt: skip
    await app.storage.note(lines)
    made = Operation(
        id=new_id(), act="revive", filter=f"queue:{QUEUE} task:{OTHER_TASK} tag:{TAG}", by=name("operator"),
        reason=message(500), queue=OTHER_QUEUE, state="failed", error=message(900), matched=123_456_789,
        changed=98_765_432, too_late=1_234_567, refused=7_654_321,
    )  # fmt: skip
    await app.storage.save_operation(made, None)
    return made.id


async def _history(app: App) -> None:
    now = await app.storage.time()
    pace = Histogram()
    for n in range(1, 200):
        pace.add(n * n * 0.7)
    rows = [
        Rollup(
            resolution=step, at=now - now % step - n * step, queue=queue, task=task,
            outcomes={"succeeded": 123_456 + n, "failed": 45_678, "retried": 9_999}, wait=pace, run=pace,
        )
        for step in (MINUTE, HOUR)
        for n in range(1, 30)
        for queue, task in ((QUEUE, TASK), (OTHER_QUEUE, OTHER_TASK), ("mail", "shop.mail.welcome"))
    ]  # fmt: skip
    await app.storage.roll_up(rows)
