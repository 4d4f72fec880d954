"""What `treadle doctor` and the dashboard look at, beside the facts that a storage knows of itself. Values in, Facts
out; `examine` does the reading.

Codes are stable: people search for them. D00x the place, D01x the cluster, D02x the jobs; a storage has its own.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ..client.client import Client
from ..core import duration, firing, warnings
from ..core.schedule import Schedule
from ..core.view import JobView, PodView, QueueView, pod_view
from ..core.warnings import ClusterWarning
from ..ports import Fact, SchemaStatus
from .jobs import Jobs
from .queues import Queues

PREFIX: Final = "TREADLE-"
OLDEST_PYTHON: Final = (3, 11)
MOST_TASKS: Final = 20
LATE: Final = 30.0  # twice the lease of a leader: so long nobody may lead, and nothing is wrong
FUTURE: Final = 60.0  # a job made so much later than now: somebody's clock is wrong
# Before the first release of Treadle: a machine whose clock was never set.
EPOCH: Final = 1_760_000_000.0

# Every code, for the page that explains them (docs/operate.md). Those of a storage are its own names for what it knows.
MEANINGS: Final[Mapping[str, str]] = {
    "TREADLE-D001": "the version of Python",
    "TREADLE-D002": "whether the storage answers",
    "TREADLE-D003": "whether its schema is the one that this version needs",
    "TREADLE-D004": "whether the clocks of this machine, of the workers and of the storage agree",
    "TREADLE-D010": "whether any pod is alive",
    "TREADLE-D011": "pods that were lost without signing off",
    "TREADLE-D012": "live pods, and none of them leads: shares, schedules and upkeep rest",
    "TREADLE-D013": "a queue with work, and no live pod serves it",
    "TREADLE-D014": "a queue is paused: by whom, and why",
    "TREADLE-D015": "a queue may have no workers (`max_workers` is 0)",
    "TREADLE-D016": "a schedule is late",
    "TREADLE-D017": "a schedule cannot be fired",
    "TREADLE-D020": "due jobs of a task that no live pod of their queue knows",
    "TREADLE-D021": "jobs run under a lease that is over, and wait for their rescue",
}
STORAGE_MEANINGS: Final[Mapping[str, str]] = {
    "memory": "jobs live in this process only",
    "sqlite-version": "the version of SQLite",
    "journal-mode": "whether the file has write-ahead logging",
    "synchronous": "whether every commit reaches the disk before it is confirmed",
    "file-system": "whether the file is on a local disk",
    "file-mode": "whether others may read the file",
    "directory": "whether anybody may put another directory in the place of the database's",
    "wal-size": "how long the log beside the file is",
    "disk-room": "how much room the disk has",
    "file-size": "how large the file is",
    "schema-checksum": "a migration was applied from another text than this version's",
    "job-row": "the row of a job that holds what no version of Treadle writes: its id, and what is wrong",
    "row": "a row of another table that holds what no version of Treadle writes",
    "postgres-version": "the version of PostgreSQL",
    "pooler": "whether wake-ups pass the pooler",
    "fsync": "whether the server keeps what it has confirmed",
    "synchronous-commit": "whether a commit waits for the disk",
    "old-snapshot": "an old transaction that keeps finished rows from being removed",
    "slow-claims": "claims walk over rows that an old transaction keeps from being removed",
    "table-*": "how many dead rows a table has",
    "role": "what the database permits this login to read",
    "claim-plan": "whether claims are served by their index",
    "connections": "how many connections the server has left",
    "clock-skew": "how far the server's clock is from this machine's",
}


async def examine(client: Client) -> list[Fact]:
    """All that can be seen of a cluster whose storage answers."""
    jobs, known = Jobs(client), await client.ask(lambda storage: storage.pods())
    pods_, queues_ = [pod_view(pod) for pod in known], await Queues(client).list()
    newest = await jobs.find("", limit=1)
    unknown = warnings.find((), known, await client.ask(lambda storage: storage.due_tasks()))
    counts = await jobs.count("is:stuck")
    now, schedules_ = await client.ask(lambda storage: storage.schedules())
    has_pods = any(pod.live for pod in pods_)
    return [
        *(_coded(fact) for fact in await client.ask(lambda storage: storage.facts()) if fact.code != "schema"),
        clock(time.time(), newest.jobs[0] if newest.jobs else None, pods_),
        *pods(pods_),
        *queues(queues_),
        *schedules(schedules_, now, has_leader=any(pod.leader and pod.live for pod in pods_)),
        *tasks(unknown, has_pods=has_pods),
        stuck(counts, has_pods=has_pods),
    ]


def _coded(fact: Fact) -> Fact:
    """A storage calls its facts by short names of its own; towards people every code begins alike."""
    return replace(fact, code=PREFIX + fact.code.upper())


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Fact:
    said = f"Python {'.'.join(map(str, version))} on {platform.system()}"
    if version < OLDEST_PYTHON:
        return Fact("TREADLE-D001", "error", said, "Treadle needs Python 3.11 or newer")
    return Fact("TREADLE-D001", "ok", said)


def unreachable(why: str) -> Fact:
    return Fact("TREADLE-D002", "error", why, "check --url, TREADLE_URL and treadle.toml")


def too_new(why: str) -> Fact:
    return Fact("TREADLE-D003", "error", why, "upgrade Treadle here, or use the version that made the schema")


def reachable(url: str, version: str) -> Fact:
    return Fact("TREADLE-D002", "ok", f"{url} answers (treadle {version})")


def schema(status: SchemaStatus) -> Fact:
    said = f"schema {status.current} of {status.newest}"
    if status.current < status.newest:
        return Fact("TREADLE-D003", "error", f"{said}: it must be migrated", "treadle db migrate")
    if status.current > status.newest:
        return Fact("TREADLE-D003", "warn", f"{said}: it is newer than this version", "upgrade Treadle here too")
    return Fact("TREADLE-D003", "ok", said)


def clock(now: float, newest: JobView | None, pods: Sequence[PodView]) -> Fact:
    if now < EPOCH:
        return Fact("TREADLE-D004", "error", "this machine's clock was never set", "set it, and keep it set (NTP)")
    seen = [newest.created_at.timestamp()] if newest is not None else []
    ahead = max([*seen, *(pod.beat_at.timestamp() for pod in pods)], default=now) - now
    if ahead > FUTURE:
        said = f"the storage holds moments {duration.words(round(ahead))} ahead of this machine's clock"
        return Fact(
            "TREADLE-D004", "error", said, "compare the clocks of all machines (NTP); a clock may have been set back"
        )
    return Fact("TREADLE-D004", "ok", "the clocks agree")


def pods(found: Sequence[PodView]) -> list[Fact]:
    live = [pod for pod in found if pod.live]
    gone = [pod for pod in found if not pod.live]
    facts = [
        Fact("TREADLE-D010", "ok", f"{_many(len(live), 'live pod')}")
        if live
        else Fact(
            "TREADLE-D010", "warn", "no live pod: nothing is being run", "treadle worker -A module:app -q default"
        )
    ]
    if gone:
        names = ", ".join(f"{pod.label} ({pod.state})" for pod in gone[:5])
        remedy = "their jobs are rescued by any live pod" if live else "start a pod: it rescues their jobs"
        facts.append(
            Fact("TREADLE-D011", "warn", f"{_many(len(gone), 'pod')} lost without signing off: {names}", remedy)
        )
    if live and not any(pod.leader for pod in live):
        remedy = "wait a few seconds; if it stays so, start a pod without --no-lead and TREADLE_DISABLE=services"
        facts.append(Fact("TREADLE-D012", "warn", "no pod leads: abandoned jobs are not looked for everywhere", remedy))
    return facts


def queues(found: Sequence[QueueView]) -> list[Fact]:
    facts: list[Fact] = []
    for queue in found:
        if queue.pods:
            text = f"queue {queue.name}: {_many(queue.pods, 'live pod')}, {_many(queue.slots, 'slot')}"
            facts.append(Fact("TREADLE-D013", "ok", text))
        elif queue.ready:
            text = f"queue {queue.name} has {_many(queue.ready, 'job')} ready, and no live pod serves it"
            facts.append(Fact("TREADLE-D013", "error", text, f"treadle worker -q {queue.name}"))
        elif queue.scheduled or queue.waiting:
            text = f"queue {queue.name} has work for later, and no live pod serves it"
            facts.append(Fact("TREADLE-D013", "warn", text, f"treadle worker -q {queue.name}"))
        if queue.paused:
            by = f" by {queue.paused_by}" if queue.paused_by else ""
            why = f": {queue.pause_reason}" if queue.pause_reason else ""
            text = f"queue {queue.name} is paused{by}{why}"
            facts.append(Fact("TREADLE-D014", "warn", text, f"treadle queues resume {queue.name}"))
        if queue.max_workers == 0:
            text = f"queue {queue.name} may have no workers (max_workers = 0)"
            facts.append(Fact("TREADLE-D015", "warn", text, f"treadle queues set {queue.name} --max-workers none"))
    return facts


def schedules(found: Sequence[Schedule], now: float, *, has_leader: bool) -> list[Fact]:
    """Schedules that are not fired, though their time has come, and those that cannot be."""
    facts: list[Fact] = []
    active = [each for each in found if not each.removed]
    for each in active:
        problem, behind = each.progress.last_error, 0.0
        try:
            behind = firing.late(each, now)
        except ValueError as error:
            problem = problem or str(error)
        if problem:
            text = f"schedule {each.name} cannot be fired: {problem}"
            facts.append(Fact("TREADLE-D017", "error", text, f"treadle schedules show {each.name}"))
        elif behind > LATE:
            text = f"schedule {each.name} should have fired {duration.words(round(behind))} ago"
            remedy = (
                "look for errors of the service cron in the leading pod's log, and for TREADLE_DISABLE=cron"
                if has_leader
                else "start a pod that may lead: treadle worker without --no-lead"
            )
            facts.append(Fact("TREADLE-D016", "error" if has_leader else "warn", text, remedy))
    if active and not facts:
        facts.append(Fact("TREADLE-D016", "ok", f"{_many(len(active), 'schedule')}, none of them late"))
    return facts


def tasks(found: Sequence[ClusterWarning], *, has_pods: bool) -> list[Fact]:
    """Tasks with due jobs that no live pod of their queue knows."""
    unknown = [each for each in found if each.kind == "unknown_task"]
    if not unknown:
        return [Fact("TREADLE-D020", "ok", "every task that jobs ask for is known to a live pod")] if has_pods else []
    return [Fact(each.code, "error", each.text, each.remedy) for each in unknown[:MOST_TASKS]]


def stuck(counts: Mapping[str, int], *, has_pods: bool) -> Fact:
    number = sum(counts.values())
    if not number:
        return Fact("TREADLE-D021", "ok", "no job is stuck")
    remedy = "a live pod rescues them within a minute" if has_pods else "start a pod: it rescues them"
    return Fact("TREADLE-D021", "warn", f"{_many(number, 'job')} running under a lease that is over", remedy)


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
