"""Glossary: what the labels of the dashboard and of `treadle top` mean. The dashboard's help and `docs/glossary.md`
are made from this table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "States of a job": {
        "waiting": "waits for an answer from outside, or behind the run of another job",
        "scheduled": "has a time in the future: it was delayed, snoozed, throttled or waits for its next attempt",
        "ready": "could start now",
        "running": "is in a slot of a pod",
        "succeeded": "its task returned",
        "failed": "its attempts are used up, or its task gave up: it runs again only if it is revived",
        "cancelled": "was stopped by a person or by its task",
        "retrying": "scheduled after a failed attempt; not a state of its own",
        "stuck": "running on a pod whose lease is over; a live pod rescues it within a minute",
        "rescued": "taken from a pod that was lost, and made ready again; the attempt counts",
        "poison": "failed because it crashed its worker again and again",
        "snoozed": "its task asked to run later; the attempt does not count",
        "throttled": "its task was told to slow down: the job runs later, and its whole queue cools down",
        "cancel wanted": "a cancel was asked for while it runs, and its task has not stopped yet",
        "Needs action": "the job will not run by itself: time alone does not help",
        "revive": "make a job that has ended ready again",
    },
    "Queues": {
        "open": "its jobs are claimed",
        "paused": "nothing is claimed from it until it is resumed; what runs goes on",
        "cooling": "nothing is claimed from it until its cool-down is over; a task has throttled it, or a person did",
        "not served": "no live pod serves it: its jobs wait",
        "max_workers 0": "a setting keeps every job of it from starting",
        "behind": "its oldest ready job has waited for more than five minutes",
        "Oldest": "how long the oldest ready job has waited since it was due",
        "Per min": "jobs that ended for good in a minute, over the last minutes",
        "Drains in": "how long until nothing is ready any more, at the pace of the last minutes",
        "steady": "as many jobs come as end: the queue does not shrink",
        "grows by": "so many more jobs become ready in a minute than end",
        "Depth": "how many jobs lie in it: ready, running and scheduled",
        "10k+": "10,000 or more: jobs that have ended are counted so far and no further",
    },
    "Times": {
        "Wait": "from due to claimed; of a job that still waits, from due until now",
        "Run": "from claimed to ended",
        "p50, p95, p99": "of 100 jobs, 50, 95 or 99 took no longer",
        "Throughput": "how many runs ended, and how",
        "at least": "it was so when this dashboard first looked, and may have begun earlier",
    },
    "Pods": {
        "live": "its lease holds: it beats, and claims jobs",
        "quiet": "claims nothing, and ends what it has begun",
        "stopping": "was asked to stop, and ends what it has begun",
        "lapsed": "its lease is over, and it has not signed off: its jobs are about to be rescued",
        "lost": "was declared gone; its jobs were rescued",
        "leader": "runs the services of the cluster: schedules, rescues, clean-up",
        "Beat": "when it was last heard of; every beat renews its lease",
        "Loop lag": "for how long its event loop was blocked since the last beat",
        "Slots used": "how many jobs it runs, of how many it has room for",
    },
    "Failures and attention": {
        "cause": "task, exception and the place that raised it",
        "new": "a cause that was first seen in the last 24 hours",
        "regressed": "a cause that is back after more than a day without it",
        "muted": "a known cause: folded, and not counted in Attention",
        "acknowledged": "a known item of Attention: folded until it changes",
        "drift": "live pods disagree about the settings or the code of a queue or a task",
    },
    "Schedules, limits and operations": {
        "fired": "a job was enqueued for this time",
        "skipped": "no job was enqueued: the one before had not ended",
        "missed": "a fire time passed while no pod led",
        "Held back": "jobs that are ready and wait for the rate",
        "Fence": "the number of a lock's holder: a later holder has a higher one",
        "Refused": "jobs that an operation left as they were: their state does not allow it",
        "Too late": "jobs that had changed before the operation reached them",
    },
}


def words() -> dict[str, str]:
    """All labels, in one."""
    return {label: says for group in LABELS.values() for label, says in group.items()}
