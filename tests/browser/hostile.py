"""Text that a page must never run, in every text that somebody can store.

It goes through the storage's port, below all checks of names and lengths: a page must be safe whatever is in the
database, and whoever has put it there. Each text carries the name of its field, so that a test can tell that the pages
have shown it.
"""

from __future__ import annotations

import asyncio
import json

import msgspec

from treadle import App
from treadle.client.client import new_id
from treadle.core.audit import AuditLine
from treadle.core.event import Event
from treadle.core.firing import Fire
from treadle.core.histogram import Histogram
from treadle.core.job import Change, ErrorEntry, NewJob, QueueChange, State, UniqueClaim
from treadle.core.logline import LogLine
from treadle.core.operation import Operation
from treadle.core.pod import Descriptor, PodCard, PodStats
from treadle.core.progress import Progress, Report
from treadle.core.rollup import MINUTE, Rollup
from treadle.core.schedule import Plan, Schedule
from treadle.ports import Lane, RunReport, Want

RUNS = "window.ran=1"
PLAIN = "hostile"  # a queue and a schedule whose names a page can be asked for by


def text(field: str) -> str:
    """For a value: out of an attribute, out of a script, out of a text area, and into a template."""
    return (
        f'"><img src=x id=made-{field} onerror="{RUNS}"></textarea></title></script>'
        f"<script>{RUNS}</script>'{{{{7*191}}}} shown-{field}."
    )


def name(field: str) -> str:
    """For a name that may be part of a path: without a slash, and short."""
    return f'"><img src=x id=made-{field} onerror={RUNS}>{{{{7*191}}}}shown-{field}.'


def short(field: str) -> str:
    """Where a page shows only the beginning."""
    return f"<img id=made-{field} src=x onerror={RUNS}>shown-{field}."


# What the pages show, one way or another. A payload's keys are texts, too.
FIELDS = (
    "task",
    "queue",
    "queue-description",
    "queue-owner",
    "queue-by",
    "pause-reason",
    "args",
    "args-key",
    "result",
    "meta",
    "tag",
    "reason",
    "unique",
    "warning",
    "error-type",
    "error-message",
    "error-trace",
    "error-place",
    "log",
    "progress-note",
    "progress-data",
    "event-detail",
    "event-by",
    "pod-label",
    "pod-host",
    "pod-version",
    "version",
    "schedule",
    "schedule-task",
    "schedule-args",
    "schedule-error",
    "schedule-by",
    "schedule-reason",
    "limit",
    "lock",
    "lock-owner",
    "audit-act",
    "audit-subject",
    "audit-detail",
    "audit-reason",
    "audit-by",
    "operation-reason",
    "operation-by",
    "operation-error",
    "operation-filter",
    "slot",
)


async def plant(app: App) -> dict[str, str]:
    """All of it. Answers with the ids of what pages are named by."""
    await app.open()
    found = {"pod": new_id(), "queue": name("queue"), "schedule": name("schedule"), "task": name("task")}
    found["cause"] = f"{name('task')}:{short('mute-type')}:{short('mute-place')}"
    await _pods(app, found)
    await _jobs(app, found)
    await _others(app, found)
    return found


async def _pods(app: App, found: dict[str, str]) -> None:
    said = Descriptor(description=text("queue-description"), owner=text("queue-owner"))
    about = {f"queue {each}": said for each in (found["queue"], PLAIN)}
    about[f"task {found['task']}"] = Descriptor(description=text("task-description"), owner=text("task-owner"))
    card = PodCard(
        id=found["pod"],
        label=name("pod-label"),
        host=text("pod-host"),
        pid=1,
        version=text("pod-version"),
        worker_version=short("version"),
        queues={found["queue"]: 9, PLAIN: 1},
        tasks=(found["task"],),
        lease=3600,
        can_lead=False,
        about=about,
    )
    await app.storage.register(card)
    stats = PodStats(running={found["queue"]: 2}, loop_lag=3.0)
    await app.storage.beat(found["pod"], 3600, [], stats=stats)


async def _jobs(app: App, found: dict[str, str]) -> None:
    made = [
        NewJob(
            id=new_id(),
            task=found["task"],
            queue=found["queue"],
            args=json.dumps({text("args-key"): text("args"), "plain": 1}),
            tags=(name("tag"),),
            meta=json.dumps({"tenant": text("meta"), "traceparent": text("trace")}),
            reason=text("reason"),
            unique=UniqueClaim(text("unique") + str(n)),
            priority=10 - n,
            max_attempts=3,
            delay=3600 if n > 3 else 0,
        )
        for n in range(6)
    ]
    await app.storage.insert(made)
    token = new_id()
    want = Want(found["queue"], 4, (Lane(frozenset({found["task"]}), 4),))
    taken = (await app.storage.claim(found["pod"], token, [want])).jobs
    assert len(taken) == 4, "the storage did not hand out what it was given"
    failed, succeeded, running, waiting = (job.id for job in taken)
    running_now = frozenset({State.RUNNING})
    error = ErrorEntry(
        attempt=1,
        kind="error",
        type=text("error-type"),
        message=text("error-message"),
        trace=_trace(),
        place=text("error-place"),
        pod=found["pod"],
    )
    await app.storage.apply(
        [
            Change(id=failed, why="failed", expect=running_now, token=token, to=State.FAILED, error=error),
            Change(
                id=succeeded,
                why="succeeded",
                expect=running_now,
                token=token,
                to=State.SUCCEEDED,
                result=json.dumps([text("result")]),
                warning=text("warning"),
            ),
        ]
    )
    progress = Progress(done=1, total=2, note=text("progress-note"), data=json.dumps({"of": text("progress-data")}))
    await app.storage.report([Report(id=running, token=token, attempt=1, progress=progress)])
    await app.storage.beat(found["pod"], 3600, [RunReport(running, token, text("slot"))])
    await app.storage.record_logs([LogLine(running, 1, 1, "warning", text("log"))])
    line = Event(id=new_id(), job=running, what="rescheduled", detail=text("event-detail"), by=text("event-by"))
    await app.storage.record([line])
    found |= {"failed": failed, "succeeded": succeeded, "running": running, "waiting": waiting}
    found |= {"scheduled": made[5].id, "ready": made[4].id}


def _trace() -> str:
    return (
        "Traceback (most recent call last):\n"
        f'  File "{text("error-path")}", line 3, in f\n    {text("error-code")}\n{text("error-trace")}\n\n'
        "During handling of the above exception, another exception occurred:\n\nValueError: x\n"
    )


async def beat(app: App, pod: str) -> None:
    """The pod answers to whoever asks for its stacks."""
    for _ in range(15):
        await app.storage.beat(pod, 3600, [], stacks=text("stacks"))
        await asyncio.sleep(0.1)


async def _others(app: App, found: dict[str, str]) -> None:
    storage = app.storage
    now = await storage.time()
    for each in (found["queue"], PLAIN):
        pause = QueueChange(
            name=each,
            by=text("queue-by"),
            paused=True,
            paused_by=text("queue-by"),
            pause_reason=text("pause-reason"),
            audit=new_id(),
        )
        await storage.apply([pause])
    plan = Plan(
        expression="every 1h",
        task=text("schedule-task"),
        queue=name("schedule-queue"),
        args=json.dumps({"a": text("schedule-args")}),
        tags=(name("schedule-tag"),),
        paused=True,
    )
    for each in (found["schedule"], PLAIN):
        schedule = Schedule(
            name=each,
            version=1,
            plan=plan,
            anchor=now,
            created_at=now,
            edited_by=text("schedule-by"),
            paused_by=text("schedule-by"),
            paused_at=now,
            pause_reason=text("schedule-reason"),
        )
        await storage.save_schedule(schedule, 0, cursor=now)
        await storage.fire(Fire(name=each, version=1, cursor=now, to=now, error=text("schedule-error")))
    await storage.save_limit(name("limit"), 3, 1.0)
    await storage.seize(name("lock"), text("lock-owner"), 3600)
    audit = AuditLine(
        id=new_id(),
        act=text("audit-act"),
        subject=short("audit-subject"),
        by=text("audit-by"),
        reason=short("audit-reason"),
        detail=text("audit-detail"),
    )
    await storage.note([audit])
    operation = Operation(
        id=new_id(),
        act="revive",
        filter=text("operation-filter"),
        by=text("operation-by"),
        reason=text("operation-reason"),
        queue=name("operation-queue"),
        state="failed",
        error=text("operation-error"),
    )
    saved = await storage.save_operation(operation, None)
    assert saved is not None
    await storage.save_operation(msgspec.structs.replace(operation, version=saved.version), saved.version)
    found["operation"] = operation.id
    pace = Histogram()
    pace.add(0.3)
    at = now - now % MINUTE - MINUTE
    row = Rollup(
        resolution=MINUTE, at=at, queue=found["queue"], task=found["task"], outcomes={"failed": 1}, wait=pace, run=pace
    )
    await storage.roll_up([row])
