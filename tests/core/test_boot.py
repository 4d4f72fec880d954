"""The boot line of a pod, and what it warns of."""

from __future__ import annotations

from treadle.core.boot import line, warnings


def a_line(tasks: list[str], storage: str = "sqlite:////srv/app.db", threads: int = 21) -> str:
    return line(
        label="web",
        version="1",
        storage=storage,
        queues={"mail": 20, "default": 1},
        threads=threads,
        tasks=tasks,
        pid=7,
    )


def test_the_line_names_storage_queues_threads_and_tasks() -> None:
    told = (
        "pod web · treadle 1 · sqlite:////srv/app.db · queues mail:20, default:1 · 21 threads · 2 tasks: a, b · pid 7"
    )
    assert a_line(["a", "b"]) == told


def test_ten_tasks_are_named_and_the_others_counted() -> None:
    names = [f"t{number:02}" for number in range(12)]
    assert "12 tasks: t00, t01, t02, t03, t04, t05, t06, t07, t08, t09 and 2 more · pid" in a_line(names)


def test_a_pod_without_tasks_or_a_named_storage() -> None:
    assert a_line([], "", 1) == "pod web · treadle 1 · queues mail:20, default:1 · 1 thread · 0 tasks · pid 7"


def test_a_pod_that_serves_what_its_tasks_use_is_not_warned() -> None:
    assert warnings(["mail", "p0", "p1"], {"a": ["mail"], "b": ["p0", "p1"]}) == []


def test_queues_that_no_task_uses_and_tasks_that_are_not_served() -> None:
    assert warnings(["mail", "mial"], {"a": ["mail"], "b": ["slow"], "c": ["mail", "p1"]}) == [
        "a queue is served here, but no known task uses it: mial",
        "2 queues are not served here: p1, slow; jobs of these tasks need another worker: b, c",
    ]


def test_a_pod_of_services_alone_says_so_and_is_warned_of_nothing() -> None:
    told = line(label="web", version="1", storage="", queues={}, threads=0, tasks=["a"], pid=7)
    assert told == "pod web · treadle 1 · no queues: only services · 0 threads · 1 task: a · pid 7"
    assert warnings([], {"a": ["mail"]}) == []
