"""The verbs of the command palette, with their subjects: only those that this user may do, and that make sense now.

Each leads to the question that the pages ask, too; nothing is done from here.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any, Final

from ..core import ids
from ..core.errors import JobNotFound
from ..core.palette import Choice, Kind, Verb, choose
from ..core.schedule_view import ScheduleView
from ..core.view import JobView, PodView, QueueView
from .access import Action
from .complete import names_of
from .pages.listed import rank
from .routing import Call

LIVE: Final = "waiting,scheduled,ready,running"
ENDED: Final = ("succeeded", "failed", "cancelled")
NOT_STARTED: Final = ("waiting", "scheduled", "ready")
_PLAIN: Final = re.compile(r"[\w.:-]+")
To = tuple[str, dict[str, Any]]


async def found(call: Call[Any, Any], text: str) -> list[Choice]:
    """What the typed words may mean to this user."""
    if not text.strip():
        return []
    web, app = call.web, call.web.reads
    queues, schedules, pods, tasks, jobs = await asyncio.gather(
        web.counts.get(("queues",), app.queues.list),
        web.counts.get(("schedules",), app.schedules.list),
        web.counts.get(("pods",), app.pods.list),
        names_of(web, "task"),
        _named(call, text),
    )
    limits, locks = await asyncio.gather(
        web.counts.get(("limits",), app.limits.list), web.counts.get(("locks",), app.locks.list)
    )
    kinds: list[Kind[Any]] = [
        Kind(word="job", subjects=jobs, name=lambda job: job.id, verbs=_allowed(call, JOB)),
        Kind(word="", subjects=[""], name=str, verbs=_allowed(call, WHOLE)),
        Kind(
            word="queue", subjects=sorted(queues, key=rank), name=lambda queue: queue.name, verbs=_allowed(call, QUEUE)
        ),
        Kind(word="task", subjects=tasks, name=str, verbs=_allowed(call, TASK)),
        Kind(word="schedule", subjects=schedules, name=lambda each: each.name, verbs=_allowed(call, SCHEDULE)),
        Kind(
            word="pod",
            subjects=[pod for pod in pods if pod.live],
            name=lambda pod: pod.label,
            verbs=_allowed(call, POD),
        ),
        Kind(
            word="limit",
            subjects=[each.name for each in limits if each.queue is None],
            name=str,
            verbs=_allowed(call, LIMIT),
        ),
        Kind(word="lock", subjects=[each.name for each in locks], name=str, verbs=_allowed(call, LOCK)),
    ]
    return choose(text, kinds)


async def _named(call: Call[Any, Any], text: str) -> list[JobView]:
    """The job whose id stands in the text."""
    for word in text.casefold().split():
        if ids.is_id(word):
            try:
                return [await call.app.jobs.get(word)]
            except JobNotFound:
                return []
    return []


def _allowed(call: Call[Any, Any], verbs: list[tuple[tuple[Action, ...], Verb[Any]]]) -> list[Verb[Any]]:
    return [verb for actions, verb in verbs if all(map(call.may, actions))]


def _value(name: str) -> str:
    """A name in a filter."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _many(act: str, filter: str) -> To:
    return "/operations/new", {"act": act, "filter": filter}


def _of_queue(queue: QueueView, act: str) -> To:
    return f"/queues/{queue.name}/{act}", {}


def _of_schedule(schedule: ScheduleView, act: str) -> To:
    return f"/schedules/{schedule.name}/{act}", {}


def _of_pod(pod: PodView, act: str) -> To:
    return f"/pods/{pod.id}/{act}", {}


def _of_job(job: JobView, act: str) -> To:
    return f"/jobs/{job.id}/{act}", {}


def _cools(queue: QueueView) -> bool:
    return queue.cool_until is not None and queue.cool_until > datetime.now(UTC)


def _has_live(queue: QueueView) -> bool:
    return bool(queue.ready or queue.scheduled or queue.waiting or queue.running)


def _serves(pod: PodView) -> bool:
    return pod.wish == "serve"


Verbs = list[tuple[tuple[Action, ...], Verb[Any]]]

# Words that people use elsewhere stand behind ours.
QUEUE: Final[Verbs] = [
    (("see",), Verb(title="Open queue {}", others="go show", to=lambda it: (f"/queues/{it.name}", {}), asks=False)),
    (
        ("pause",),
        Verb(
            title="Pause queue {}",
            others="stop hold suspend halt disable",
            to=lambda it: _of_queue(it, "pause"),
            fits=lambda it: not it.paused,
        ),
    ),
    (
        ("resume",),
        Verb(
            title="Resume queue {}",
            others="unpause continue start go enable",
            to=lambda it: _of_queue(it, "resume"),
            fits=lambda it: it.paused,
        ),
    ),
    (
        ("resume",),
        Verb(
            title="End cool-down of queue {}",
            others="warm unthrottle resume cooldown",
            to=lambda it: _of_queue(it, "warm"),
            fits=_cools,
        ),
    ),
    (
        ("set_queue",),
        Verb(
            title="Scale queue {}", others="set workers concurrency max_workers", to=lambda it: _of_queue(it, "scale")
        ),
    ),
    (
        ("set_queue",),
        Verb(
            title="Settings of queue {}",
            others="set edit change configure rate retention timeout",
            to=lambda it: _of_queue(it, "settings"),
        ),
    ),
    (
        ("revive",),
        Verb(
            title="Revive failures of queue {}",
            others="retry rerun again requeue failed jobs in",
            to=lambda it: _many("revive", f"state:failed queue:{_value(it.name)}"),
            fits=lambda it: it.failed > 0,
        ),
    ),
    (
        ("cancel",),
        Verb(
            title="Cancel jobs of queue {}",
            others="abort kill stop purge empty clear flush drop in",
            to=lambda it: _many("cancel", f"queue:{_value(it.name)} state:{LIVE}"),
            fits=_has_live,
        ),
    ),
    (
        ("delete",),
        Verb(
            title="Delete failures of queue {}",
            others="remove forget clear failed jobs in",
            to=lambda it: _many("delete", f"state:failed queue:{_value(it.name)}"),
            fits=lambda it: it.failed > 0,
        ),
    ),
]

TASK: Final[Verbs] = [
    (
        ("see",),
        Verb(
            title="Open task {}",
            others="go show timings",
            to=lambda it: ("/performance/task", {"task": it}),
            asks=False,
        ),
    ),
    (
        ("see",),
        Verb(title="Failures of task {}", others="show errors", to=lambda it: ("/failures", {"task": it}), asks=False),
    ),
    (
        ("enqueue",),
        Verb(title="Enqueue task {}", others="run start send add new job", to=lambda it: ("/enqueue", {"task": it})),
    ),
    (
        ("revive",),
        Verb(
            title="Revive failures of task {}",
            others="retry rerun again requeue failed jobs",
            to=lambda it: _many("revive", f"state:failed task:{_value(it)}"),
        ),
    ),
    (
        ("cancel",),
        Verb(
            title="Cancel jobs of task {}",
            others="abort kill stop drop",
            to=lambda it: _many("cancel", f"task:{_value(it)} state:{LIVE}"),
        ),
    ),
    (
        ("delete",),
        Verb(
            title="Delete failures of task {}",
            others="remove forget failed jobs",
            to=lambda it: _many("delete", f"state:failed task:{_value(it)}"),
        ),
    ),
]

SCHEDULE: Final[Verbs] = [
    (
        ("see",),
        Verb(title="Open schedule {}", others="go show cron", to=lambda it: (f"/schedules/{it.name}", {}), asks=False),
    ),
    (
        ("fire",),
        Verb(title="Fire schedule {}", others="run trigger now start cron", to=lambda it: _of_schedule(it, "fire")),
    ),
    (
        ("pause",),
        Verb(
            title="Pause schedule {}",
            others="stop hold suspend disable cron",
            to=lambda it: _of_schedule(it, "pause"),
            fits=lambda it: not it.paused,
        ),
    ),
    (
        ("resume",),
        Verb(
            title="Resume schedule {}",
            others="unpause continue start enable cron",
            to=lambda it: _of_schedule(it, "resume"),
            fits=lambda it: it.paused,
        ),
    ),
    (
        ("set_schedule",),
        Verb(title="Edit schedule {}", others="set change cron", to=lambda it: _of_schedule(it, "edit")),
    ),
    (
        ("set_schedule",),
        Verb(title="Remove schedule {}", others="delete drop cron", to=lambda it: _of_schedule(it, "remove")),
    ),
]

POD: Final[Verbs] = [
    (("see",), Verb(title="Open pod {}", others="go show worker", to=lambda it: (f"/pods/{it.id}", {}), asks=False)),
    (
        ("quiet",),
        Verb(
            title="Quiet pod {}",
            others="drain cordon pause worker",
            to=lambda it: _of_pod(it, "quiet"),
            fits=_serves,
        ),
    ),
    (
        ("quiet",),
        Verb(
            title="Let pod {} serve",
            others="resume uncordon unpause worker",
            to=lambda it: _of_pod(it, "serve"),
            fits=lambda it: it.wish == "quiet",
        ),
    ),
    (
        ("stop",),
        Verb(
            title="Stop pod {}",
            others="kill terminate shutdown end worker",
            to=lambda it: _of_pod(it, "stop"),
            fits=lambda it: it.wish != "stop",
        ),
    ),
]

LIMIT: Final[Verbs] = [
    (
        ("set_limit",),
        Verb(title="Set limit {}", others="edit change rate", to=lambda it: ("/limits/set", {"name": it})),
    ),
    (("set_limit",), Verb(title="Remove limit {}", others="delete", to=lambda it: ("/limits/remove", {"name": it}))),
]

LOCK: Final[Verbs] = [
    (("free_lock",), Verb(title="Free lock {}", others="unlock release", to=lambda it: ("/locks/free", {"name": it}))),
]

JOB: Final[Verbs] = [
    (("see",), Verb(title="Open job {}", others="go show", to=lambda it: (f"/jobs/{it.id}", {}), asks=False)),
    (
        ("revive",),
        Verb(
            title="Revive job {}",
            others="retry rerun again requeue",
            to=lambda it: _many("revive", f"id:{it.id}"),
            fits=lambda it: it.state in ENDED,
        ),
    ),
    (
        ("cancel",),
        Verb(
            title="Cancel job {}",
            others="abort kill stop",
            to=lambda it: _of_job(it, "cancel"),
            fits=lambda it: it.state not in ENDED,
        ),
    ),
    (
        ("answer",),
        Verb(title="Answer job {}", to=lambda it: _of_job(it, "answer"), fits=lambda it: it.state == "waiting"),
    ),
    (
        ("reschedule",),
        Verb(
            title="Reschedule job {}",
            others="delay later now",
            to=lambda it: _of_job(it, "reschedule"),
            fits=lambda it: it.state in ("scheduled", "ready"),
        ),
    ),
    (
        ("priority",),
        Verb(
            title="Priority of job {}",
            others="set",
            to=lambda it: _of_job(it, "priority"),
            fits=lambda it: it.state in NOT_STARTED,
        ),
    ),
    (
        ("move",),
        Verb(
            title="Move job {}",
            others="queue",
            to=lambda it: _of_job(it, "move"),
            fits=lambda it: it.state in NOT_STARTED,
        ),
    ),
    (
        ("enqueue", "payload"),
        Verb(
            title="Enqueue a job like {}",
            others="copy clone edit again run",
            to=lambda it: ("/enqueue", {"like": it.id}),
        ),
    ),
    (
        ("delete",),
        Verb(
            title="Delete job {}",
            others="remove forget",
            to=lambda it: _of_job(it, "delete"),
            fits=lambda it: it.state in ENDED,
        ),
    ),
]

WHOLE: Final[Verbs] = [
    (("enqueue",), Verb(title="Enqueue a job", others="run start send add new task", to=lambda _: ("/enqueue", {}))),
    (
        ("revive",),
        Verb(
            title="Revive all failed jobs",
            others="retry rerun again requeue failures of",
            to=lambda _: _many("revive", "state:failed"),
        ),
    ),
    (
        ("set_schedule", "enqueue"),
        Verb(title="Add a schedule", others="new create cron", to=lambda _: ("/schedules-new", {})),
    ),
    (("set_limit",), Verb(title="Add a limit", others="new create set rate", to=lambda _: ("/limits/set", {}))),
    (("see",), Verb(title="Help and keys", others="shortcuts filter language", to=lambda _: ("/help", {}))),
]
