"""A process that stops or dies at one exact step of its writes to SQLite. Run as a script:

    with_points.py PART STEP SIGNAL worker …    as `treadle worker …`
    with_points.py PART STEP SIGNAL enqueue ID…    a client that enqueues these jobs in one transaction

PART is what the group of writes must hold (claim, finish, insert, beat), STEP is one that `writer.on_step` tells of,
SIGNAL is what the process sends itself there, once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from treadle.storages.sqlite import apply, claim, cluster, insert, writer

AFTER_THE_WRITES = ("group.before_commit", "group.after_commit")


def arm(part: str, step: str, number: signal.Signals) -> None:
    """Before the writes of a group only its calls are known, and after them also what they did."""
    holds_part = False
    spent = False

    def watch(module: Any, name: str, counts: Callable[[Any, tuple[Any, ...]], bool]) -> None:
        real = getattr(module, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal holds_part
            answer = real(*args, **kwargs)
            holds_part = holds_part or counts(answer, args)
            return answer

        setattr(module, name, watched)

    def on_step(name: str) -> None:
        nonlocal holds_part, spent
        if name == step and not spent and (holds_part if step in AFTER_THE_WRITES else _asked(part)):
            spent = True
            os.kill(os.getpid(), number)
        if name in ("group.before_begin", "group.after_commit"):
            holds_part = False

    match part:
        case "claim":
            watch(claim, "claim", lambda answer, args: bool(answer.jobs))
        case "finish":
            watch(apply, "apply", lambda answer, args: _ends_a_run(args[1]))
        case "insert":
            watch(insert, "insert", lambda answer, args: True)
        case "beat":
            watch(cluster, "beat", lambda answer, args: bool(answer.held))
        case _:
            raise AssertionError(part)
    writer.on_step = on_step


def _ends_a_run(changes: Any) -> bool:
    return any(getattr(change, "why", "") == "succeeded" for change in changes)


def _asked(part: str) -> bool:
    """Whether the group that is about to begin holds a call of this verb, and a finish if that is what we wait for."""
    frame = sys._getframe()
    while frame is not None and "group" not in frame.f_locals:
        frame = frame.f_back  # type: ignore[assignment]
    assert frame is not None, "writer.on_step is not called where the group is known any more"
    return any(_is(part, call.operation) for call in frame.f_locals["group"])


def _is(part: str, operation: Any) -> bool:
    inner = getattr(operation, "func", operation)
    cells = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    arguments = [*getattr(operation, "args", ()), *cells]
    if part == "finish":
        return any(isinstance(each, list | tuple) and _ends_a_run(each) for each in arguments)
    names = {inner.__qualname__, *(getattr(each, "__qualname__", "") for each in arguments)}
    return any(part in name.replace("<", ".").split(".") for name in names)


def main() -> None:
    part, step, number, verb, *rest = sys.argv[1:]
    arm(part, step, signal.Signals[number])
    if verb == "worker":
        import treadle.cli

        sys.argv = ["treadle", verb, *rest]
        treadle.cli.main()
    else:
        from journey_app import act, app

        app.enqueue_many_sync(act.using(id=id).bind() for id in rest)
        app.close_sync()


main()
