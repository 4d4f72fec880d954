"""What a pod says of itself when it starts: one line, and what looks like a mistake in what it serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

MOST_NAMES: Final = 10


def line(
    *, label: str, version: str, storage: str, queues: Mapping[str, int], threads: int, tasks: Sequence[str], pid: int
) -> str:
    served = ", ".join(f"{name}:{slots}" for name, slots in queues.items())
    parts = [
        f"pod {label}",
        f"treadle {version}",
        *([storage] if storage else []),
        f"queues {served}" if served else "no queues: only services",
        _many(threads, "thread"),
        f"{_many(len(tasks), 'task')}{': ' if tasks else ''}{_named(tasks)}",
        f"pid {pid}",
    ]
    return " · ".join(parts)


def warnings(served: Collection[str], queues_of: Mapping[str, Collection[str]]) -> list[str]:
    """`queues_of` names the queues of each task that this pod knows. A pod that serves none does so on purpose."""
    if not served:
        return []
    used = {queue for queues in queues_of.values() for queue in queues}
    said: list[str] = []
    if unused := [queue for queue in served if queue not in used]:
        said.append(f"{_queues(unused)} served here, but no known task uses it: {_named(unused)}")
    if unserved := sorted(used.difference(served)):
        tasks = sorted(task for task, queues in queues_of.items() if not {*queues} <= {*served})
        said.append(
            f"{_queues(unserved)} not served here: {_named(unserved)}; jobs of these tasks need another worker: "
            f"{_named(tasks)}"
        )
    return said


def _queues(names: Sequence[str]) -> str:
    return "a queue is" if len(names) == 1 else f"{len(names)} queues are"


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
