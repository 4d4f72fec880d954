"""Points for charts, in the stream: the last steps of what a page shows, so that it need not ask for all of them again.

A chart is asked for by its step, and by the queue and the task that it is of. The steps that are over do not change
any more, but for pods that write late: three of them are told. What stands for an hour is looked at less often than
what stands for a minute: nobody would see the difference. A page whose charts may be of seconds (`fine`) is told points
of the step that holds now: where it is another than the one it shows, it asks for its charts anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .plain import plain

if TYPE_CHECKING:
    from ..app import App

LEAST: Final = 2.0
TOLD: Final = 4
SHARE: Final = 30.0  # a step is looked at so many times


class Asked(NamedTuple):
    """Which chart."""

    step: int  # seconds
    queue: str | None = None
    task: str | None = None
    fine: bool = False  # points of seconds, while history is young


class Tails:
    """The last points of each chart that somebody looks at, read once for all of them."""

    def __init__(self, app: App, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._app = app
        self._clock = clock
        self._kept: dict[Asked, tuple[float, Any]] = {}

    async def read(self, wanted: Iterable[Asked]) -> dict[Asked, Any]:
        """Charts that no stream wants any more are forgotten. One of a name that no queue or task can have is left
        out: the other charts have their points all the same."""
        kept: dict[Asked, tuple[float, Any]] = {}
        for asked in {*wanted}:
            now, found = self._clock(), self._kept.get(asked)
            if found is None or now - found[0] >= max(LEAST, found[1]["step"] / SHARE):
                try:
                    found = now, await self._tail(asked)
                except ValueError:
                    continue
            kept[asked] = found
        self._kept = kept
        return {asked: tail for asked, (_, tail) in kept.items()}

    async def _tail(self, asked: Asked) -> Any:
        series = await self._app.history.series(
            queue=asked.queue, task=asked.task, since=float(2 * asked.step), step=float(asked.step), fine=asked.fine
        )
        return plain({"step": series.step, "points": series.points[-TOLD:]})
