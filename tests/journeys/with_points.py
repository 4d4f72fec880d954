"""A process that stops or dies at one exact step of its writes to SQLite. Run as a script:

    with_points.py PART STEP SIGNAL worker …        as `treadle worker …`
    with_points.py PART STEP SIGNAL enqueue ID …    a client that enqueues these jobs in one transaction

PART is what the group of writes must hold: insert, claim (that took something), finish (of a run that returned), wait
(for an answer), take_over (by what was kept behind one), beat (while something runs), fire (of a schedule that was
due). STEP is one that `writer.on_step` tells of; SIGNAL is what the process sends itself there, once.

Before the writes of a group only what was asked for can be known, after them what was done.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from treadle.storages.sqlite import SQLiteStorage, apply, claim, cluster, insert, schedules, writer


class Point:
    def __init__(self, part: str, step: str, number: signal.Signals) -> None:
        self._step = step
        self._signal = number
        self._armed = False
        self._spent = False
        if step in ("group.before_begin", "group.begun"):
            self._when_asked(part)
        else:
            self._when_done(part)
        writer.on_step = self._on_step

    def _on_step(self, step: str) -> None:
        if step == self._step and self._armed and not self._spent:
            self._spent = True
            # To this very thread: it must not get one step further while the kernel stops the others.
            signal.pthread_kill(threading.get_ident(), self._signal)
            if self._signal is signal.SIGTERM:
                time.sleep(0.3)  # the worker shall hear it while this write is still under way

    def _when_asked(self, part: str) -> None:
        match part:
            case "claim":
                self._watch(SQLiteStorage, "claim", lambda args, answer: True)
            case "finish":
                self._watch(SQLiteStorage, "apply", lambda args, answer: _ends_a_run(args[1]))
            case "take_over":
                self._watch(SQLiteStorage, "apply", lambda args, answer: _takes_over(args[1]))
            case "beat":
                self._watch(SQLiteStorage, "beat", lambda args, answer: bool(args[3]))
            case _:
                raise AssertionError(part)

    def _when_done(self, part: str) -> None:
        match part:
            case "insert":
                self._watch(insert, "insert", lambda args, answer: True, after=True)
            case "claim":
                self._watch(claim, "claim", lambda args, answer: bool(answer.jobs), after=True)
            case "wait":
                self._watch(apply, "apply", lambda args, answer: _waits(args[1]), after=True)
            case "finish":
                self._watch(apply, "apply", lambda args, answer: _ends_a_run(args[1]), after=True)
            case "take_over":
                self._watch(apply, "apply", lambda args, answer: _takes_over(args[1]), after=True)
            case "beat":
                self._watch(cluster, "beat", lambda args, answer: bool(answer.held), after=True)
            case "fire":
                self._watch(schedules, "fire", lambda args, answer: answer.outcome == "fired", after=True)
            case _:
                raise AssertionError(part)

    def _watch(
        self, home: Any, name: str, is_it: Callable[[tuple[Any, ...], Any], bool], *, after: bool = False
    ) -> None:
        real = getattr(home, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if not after:
                self._armed = self._armed or is_it(args, None)
                return real(*args, **kwargs)
            answer = real(*args, **kwargs)
            self._armed = self._armed or is_it(args, answer)
            return answer

        setattr(home, name, watched)


def _waits(changes: Any) -> bool:
    return any(getattr(change, "why", "") == "waits" for change in changes)


def _ends_a_run(changes: Any) -> bool:
    return any(getattr(change, "why", "") == "succeeded" for change in changes)


def _takes_over(changes: Any) -> bool:
    return any(getattr(change, "takes", None) is not None for change in changes)


def main() -> None:
    part, step, number, verb, *rest = sys.argv[1:]
    Point(part, step, signal.Signals[number])
    if verb == "worker":
        import treadle.cli

        sys.argv = ["treadle", verb, *rest]
        treadle.cli.main()
    else:
        from journey_app import act, app

        app.enqueue_many_sync([act.using(id=id).bind() for id in rest])
        app.close_sync()


main()
