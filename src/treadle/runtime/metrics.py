"""Metrics: what a pod shows to Prometheus. `CATALOGUE` is the whole list; docs/metrics.md is made from it.

Everything is read from a thread, while the loop may be blocked: from the Meter, from what the loops last saw, and from
the last survey. Labels are names that people have given (queues, tasks, services), outcomes and verbs; never an id,
never an error's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ..core import queue as queueing
from ..core import warnings
from ..core.histogram import Histogram
from ..core.job import State
from .services.cron import Cron
from .services.surveyor import Survey
from .usage import usage

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from .pod import Pod

Kind = Literal["gauge", "counter", "histogram"]
Fill = Callable[["Pod"], Iterable[tuple[tuple[str, ...], Any]]]

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800, 3600)
MOST_UNKNOWN: Final = 100  # their names come from whoever enqueues, and are nobody's promise
SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True, slots=True)
class Metric:
    """One name, and how its samples are read off a pod: (label values, value)."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    fill: Fill
    bounds: tuple[float, ...] = BOUNDS


def _one(value: Callable[[Pod], Any]) -> Fill:
    return lambda pod: (((), value(pod)),)


def _counted(name: str) -> Fill:
    """What the Meter counts under this name, with as many labels as were counted with it."""
    return lambda pod: [(key[1:], count) for key, count in list(pod.meter.counts.items()) if key[0] == name]


def _surveyed(read: Callable[[Survey], Iterable[tuple[tuple[str, ...], Any]]]) -> Fill:
    def fill(pod: Pod) -> Iterable[tuple[tuple[str, ...], Any]]:
        survey = pod.surveyor.survey
        return () if survey is None else read(survey)

    return fill


def _of_queues(value: Callable[[queueing.QueueStats, Survey], Any]) -> Fill:
    """One sample a queue, of those that have a value."""
    return _surveyed(
        lambda survey: [
            ((each.queue.name,), found) for each in survey.queues if (found := value(each, survey)) is not None
        ]
    )


def _jobs(survey: Survey) -> Iterator[tuple[tuple[str, ...], int]]:
    for stats in survey.queues:
        for state in State:
            yield (stats.queue.name, state.value), getattr(stats, state.value)


def _is_unserved(stats: queueing.QueueStats, survey: Survey) -> bool:
    return not any(pod.live and stats.queue.name in pod.card.queues for pod in survey.pods)


def _queue_info(survey: Survey) -> Iterator[tuple[tuple[str, ...], int]]:
    """One sample for each thing that live pods say of a queue: more than one is drift."""
    for stats in survey.queues:
        name = stats.queue.name
        said = {
            (about.owner, about.docs)
            for pod in survey.pods
            if pod.live and (about := pod.card.about.get(f"queue {name}")) is not None
        }
        yield from (((name, owner, docs), 1) for owner, docs in sorted(said or {("", "")}))


def _unknown_tasks(survey: Survey) -> Iterator[tuple[tuple[str, ...], int]]:
    found = warnings.find(survey.queues, survey.pods, survey.due_tasks)
    unknown = {(each.queue, each.task) for each in found if each.kind == "unknown_task"}
    counts: dict[str, int] = {}
    for due in survey.due_tasks:
        if (due.queue, due.task) in unknown:
            counts[due.task] = counts.get(due.task, 0) + due.count
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_UNKNOWN]
    yield from (((task,), count) for task, count in most)


def _pods(survey: Survey) -> list[tuple[tuple[str, ...], int]]:
    states = ["lost" if pod.lost else "live" if pod.live else "lapsed" for pod in survey.pods]
    return [((state,), states.count(state)) for state in ("live", "lapsed", "lost")]


def _finished(pod: Pod) -> Iterator[tuple[tuple[str, ...], int]]:
    for row in pod.meter.totals():
        for outcome, count in sorted(row.outcomes.items()):
            yield (row.queue, row.task, outcome), count


def _times(name: Literal["wait", "run", "total"]) -> Fill:
    return lambda pod: [((row.queue, row.task), getattr(row, name)) for row in pod.meter.totals()]


def _produced(pod: Pod, outcome: str) -> list[tuple[tuple[str, ...], int]]:
    return [(key[1:], count) for key, count in sorted(pod.produced.copy().items()) if key[0] == outcome]


def _crons(pod: Pod) -> list[Cron]:
    return [each.service for each in pod.rounds if isinstance(each.service, Cron)]


def _fires(pod: Pod) -> list[tuple[tuple[str, ...], int]]:
    return [(key, count) for cron in _crons(pod) for key, count in sorted(cron.fires.copy().items())]


def _vital(name: str) -> Fill:
    def fill(pod: Pod) -> Iterable[tuple[tuple[str, ...], Any]]:
        value = None if pod.recorder.reading is None else getattr(pod.recorder.reading, name)
        return () if value is None else (((), value),)

    return fill


CATALOGUE: Final[tuple[Metric, ...]] = (
    # Queues: as the storage shows them, not older than 15 s. The same from every pod: take the maximum over pods.
    Metric("treadle_jobs", "gauge", ("queue", "state"), "Jobs by state; ended ones are counted to 10,000 only.",
           _surveyed(_jobs)),
    Metric("treadle_retrying_jobs", "gauge", (), "Jobs that wait for another attempt, counted to 10,000; absent while "
           "more than 100,000 are scheduled.",
           _surveyed(lambda survey: () if survey.retrying is None else (((), survey.retrying),))),
    Metric("treadle_oldest_ready_age_seconds", "gauge", ("queue",), "How long the oldest ready job has waited: what to "
           "scale on.", _of_queues(lambda stats, _: stats.oldest_ready_seconds or 0.0)),
    Metric("treadle_drain_seconds", "gauge", ("queue",), "When what is ready will have run, by what came and ended in "
           "the last five minutes, with pause, rate and cool-down; +Inf if it grows, or nothing ends.",
           _of_queues(lambda stats, survey: survey.drains.get(stats.queue.name, 0.0))),
    Metric("treadle_queue_max_workers", "gauge", ("queue",), "The cluster-wide limit, where one is set.",
           _of_queues(lambda stats, _: stats.queue.max_workers)),
    Metric("treadle_queue_paused", "gauge", ("queue",), "1 while it is paused.",
           _of_queues(lambda stats, survey: int(
               stats.queue.paused and (stats.queue.paused_until or float("inf")) > survey.at))),
    Metric("treadle_queue_cooled", "gauge", ("queue",), "1 while it cools down.",
           _of_queues(lambda stats, survey: int((stats.queue.cool_until or 0.0) > survey.at))),
    Metric("treadle_queue_unserved", "gauge", ("queue",), "1 while no live pod serves it.",
           _of_queues(lambda stats, survey: int(_is_unserved(stats, survey)))),
    Metric("treadle_queue_info", "gauge", ("queue", "owner", "docs"), "Always 1; what code says of the queue. Two "
           "for one queue: workers disagree.",
           _surveyed(_queue_info)),
    Metric("treadle_unknown_task_jobs", "gauge", ("task",), "Due jobs of tasks that no live pod knows, counted to "
           "1,000.", _surveyed(_unknown_tasks)),
    Metric("treadle_pods", "gauge", ("state",), "Pods: live, lapsed, lost.", _surveyed(_pods)),
    # Jobs: counted by this pod. Sum over pods.
    Metric("treadle_enqueued_total", "counter", ("queue", "task"), "Jobs that this process has enqueued.",
           lambda pod: _produced(pod, "inserted")),
    Metric("treadle_duplicates_total", "counter", ("queue", "task"), "Enqueues that found their unique key held.",
           lambda pod: _produced(pod, "duplicate")),
    Metric("treadle_claimed_total", "counter", (), "Claims.", _one(lambda pod: pod.turner.counts["claimed"])),
    Metric("treadle_finished_total", "counter", ("queue", "task", "outcome"), "Runs that ended, by what became of the "
           "job: succeeded, retried, failed, cancelled, snoozed, throttled, released, rescued, waits.", _finished),
    Metric("treadle_running", "gauge", ("queue",), "Runs under way.",
           lambda pod: [((name,), pod.roster.running(name)) for name in list(pod.roster.queues)]),
    Metric("treadle_wait_seconds", "histogram", ("queue", "task"), "From due to claimed.", _times("wait")),
    Metric("treadle_run_seconds", "histogram", ("queue", "task"), "What a run takes.", _times("run")),
    Metric("treadle_total_seconds", "histogram", ("queue", "task"), "From enqueued to ended for good.",
           _times("total")),
    # Safety
    Metric("treadle_stale_changes_total", "counter", (), "Finishes that came too late: the job was somebody else's.",
           _one(lambda pod: pod.turner.counts["stale"])),
    Metric("treadle_rescues_total", "counter", ("reason",), "Rescues by this pod: gone, lease, deadline.",
           lambda pod: [((why,), pod.rescues[why]) for why in ("gone", "lease", "deadline")]),
    Metric("treadle_poison_total", "counter", (), "Jobs failed because they took three pods with them.",
           _one(lambda pod: pod.meter.counts["poison",])),
    Metric("treadle_rate_limited_total", "counter", ("scope",), "How often somebody in this process had to wait for a "
           "limit's tokens.", lambda pod: [((scope,), count) for scope, count in sorted(pod.limited.copy().items())]),
    # Turns
    Metric("treadle_turn_seconds", "histogram", (), "What a turn's storage calls take.",
           _one(lambda pod: pod.meter.turn_seconds)),
    Metric("treadle_turn_size", "histogram", (), "Finishes that one turn writes.",
           _one(lambda pod: pod.meter.turn_size), SIZES),
    Metric("treadle_turn_claimed", "histogram", (), "Jobs that one turn takes.",
           _one(lambda pod: pod.meter.turn_claimed), SIZES),
    Metric("treadle_empty_turns_total", "counter", (), "Turns that wrote and took nothing.",
           _one(lambda pod: pod.meter.counts["empty_turns",])),
    Metric("treadle_wakes_total", "counter", ("source",), "What made the pod look: signal, timer, pod.",
           _counted("wakes")),
    Metric("treadle_free_slots", "gauge", (), "Slots with no run in them.",
           _one(lambda pod: sum(pod.roster.queues.values()) - len(pod.roster))),
    # The pod in its cluster
    Metric("treadle_pod_slots", "gauge", ("queue",), "Slots of this pod.",
           lambda pod: [((name,), slots) for name, slots in list(pod.roster.queues.items())]),
    Metric("treadle_beat_age_seconds", "gauge", (), "Since the last answered beat was sent.",
           _one(lambda pod: pod.heart.beat_age)),
    Metric("treadle_leader", "gauge", (), "1 while this pod leads.", _one(lambda pod: int(pod.leader.leads))),
    Metric("treadle_service_seconds", "histogram", ("service",), "What a pass of a service takes.",
           lambda pod: [((each.service.name,), each.times) for each in pod.rounds]),
    Metric("treadle_service_overruns_total", "counter", ("service",), "Passes longer than the pause between them.",
           lambda pod: [((each.service.name,), each.overruns) for each in pod.rounds]),
    Metric("treadle_service_errors_total", "counter", ("service",), "Passes that failed; each is tried again.",
           lambda pod: [((each.service.name,), each.errors) for each in pod.rounds]),
    Metric("treadle_fires_total", "counter", ("schedule", "result"), "Fire times of schedules, seen to while this pod "
           "led: fired, skipped, missed.", _fires),
    Metric("treadle_fire_late_seconds", "histogram", (), "How late fires were.",
           lambda pod: [((), cron.late) for cron in _crons(pod)]),
    # Its storage, and itself
    Metric("treadle_storage_call_seconds", "histogram", ("verb",), "Storage calls of this pod.",
           lambda pod: [((verb,), times) for verb, times in sorted(pod.timed.seconds.copy().items())]),
    Metric("treadle_storage_errors_total", "counter", ("verb",), "Storage calls that failed.",
           lambda pod: [((verb,), count) for verb, count in sorted(pod.timed.errors.copy().items())]),
    Metric("treadle_storage_bytes", "gauge", (), "Size of the storage, once a minute.", _vital("storage_bytes")),
    Metric("treadle_storage_wal_bytes", "gauge", (), "Size of its write-ahead log, where it may be seen.",
           _vital("wal_bytes")),
    Metric("treadle_storage_connections", "gauge", (), "Connections of Treadle to its server.", _vital("connections")),
    Metric("treadle_pod_cpu_seconds_total", "counter", (), "Processor time of the process.",
           _one(lambda pod: usage().cpu_seconds)),
    Metric("treadle_pod_rss_bytes", "gauge", (), "Memory of the process.", _one(lambda pod: usage().rss)),
    Metric("treadle_pod_children", "gauge", (), "Child processes that run its calls.", _one(lambda pod: pod.children)),
    Metric("treadle_abandoned_runs", "gauge", (), "Runs that were given up and go on: they ignore their cancel.",
           _one(lambda pod: pod.crew.abandoned)),
    Metric("treadle_pod_disk_free_bytes", "gauge", (), "Room on the storage's disk, or on that of the working "
           "directory, once a minute.", _vital("disk_free")),
    Metric("treadle_loop_lag_seconds", "gauge", (), "How late the event loop was when last measured.",
           _one(lambda pod: pod.heart.lag)),
    Metric("treadle_log_lines_dropped_total", "counter", (), "Lines of jobs' logs that found no room.",
           _one(lambda pod: pod.reporter.dropped)),
    Metric("treadle_events_dropped_total", "counter", (), "Lines of timelines that found the buffer full.",
           _one(lambda pod: pod.meter.dropped)),
    Metric("treadle_hook_errors_total", "counter", ("hook",), "Hooks that raised.",
           lambda pod: [((name,), count) for name, count in sorted(pod.hook_errors.copy().items())]),
    Metric("treadle_build_info", "gauge", ("version", "pod"), "Always 1; this pod's version and label.",
           lambda pod: [((pod.version, pod.label), 1)]),
)  # fmt: skip


class Exposition:
    """A pod as a source of metric families. Without one (it is only starting) every name is there, without samples."""

    def __init__(self, pod: Pod | None) -> None:
        self._pod = pod

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self)  # it asks for nothing but `collect`

    def collect(self) -> Iterator[Family]:
        for metric in CATALOGUE:
            yield family(metric, () if self._pod is None else metric.fill(self._pod))


def family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], Any]]) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if metric.kind == "histogram":
        spread = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in samples:
            spread.add_metric(labels, _buckets(value, metric.bounds), value.sum)
        return spread
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _buckets(found: Histogram, bounds: tuple[float, ...]) -> list[tuple[str, float]]:
    times = found.copy()  # of one moment: it goes on growing
    counts = times.up_to(bounds)
    return [*((str(float(bound)), count) for bound, count in zip(bounds, counts, strict=True)), ("+Inf", times.count)]


def describe() -> Mapping[str, list[Metric]]:
    """The catalogue, for the documentation: names that are the same from every pod, and those of a pod."""
    shared = [metric for metric in CATALOGUE if metric.name in _SHARED]
    return {"shared": shared, "own": [metric for metric in CATALOGUE if metric.name not in _SHARED]}


_SHARED: Final = frozenset(
    metric.name
    for metric in CATALOGUE
    if metric.name.startswith(("treadle_jobs", "treadle_oldest", "treadle_drain", "treadle_queue_", "treadle_unknown"))
    or metric.name in ("treadle_pods", "treadle_retrying_jobs")
)
