"""What `treadle top` shows and what a key does, as values: nothing here draws, waits or asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from ..core.records import FailureView
from ..core.view import JobView, PodView, QueueView
from ..core.warnings import ClusterWarning

Panel = Literal["queues", "running", "failures", "pods"]
PANELS: Final[tuple[Panel, ...]] = ("queues", "running", "failures", "pods")
ActName = Literal["pause", "resume", "cancel", "revive", "quiet", "serve"]

HELP: Final = (
    ("Tab, ←, →", "the next panel"),
    ("j, k, ↓, ↑", "move"),
    ("p", "pause or resume the queue; let the pod be quiet or serve"),
    ("C", "cancel the running job (asks)"),
    ("r", "revive the failures of this cause (asks)"),
    (".", "hold still, go on"),
    ("?", "this help"),
    ("q", "quit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What there is to see at one moment."""

    at: datetime
    place: str  # which storage, without its password
    env: str | None = None
    queues: Sequence[QueueView] = ()
    pods: Sequence[PodView] = ()
    running: Sequence[JobView] = ()
    failures: Sequence[FailureView] = ()
    warnings: Sequence[ClusterWarning] = ()
    per_minute: float = 0.0  # succeeded, over the last minutes
    trouble: str | None = None  # why this one could not be read; what it shows is older

    def of(self, panel: Panel) -> Sequence[QueueView | JobView | FailureView | PodView]:
        match panel:
            case "queues":
                return self.queues
            case "running":
                return self.running
            case "failures":
                return self.failures
            case "pods":
                return self.pods


@dataclass(frozen=True, slots=True)
class Act:
    """Something that an operator wants to be done."""

    name: ActName
    target: str  # a queue's name, a job's id, a filter, a pod's id
    question: str | None = None  # what must be answered with y before it is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    panel: Panel = "queues"
    row: int = 0
    held: bool = False  # the data stands still
    helping: bool = False
    asking: Act | None = None
    said: str = ""  # what became of the last act
    over: bool = False


def press(screen: Screen, key: str, seen: Snapshot) -> tuple[Screen, Act | None]:
    """What the screen is after a key, and what is to be done, if anything is."""
    if screen.asking is not None:
        wanted = screen.asking if key in ("y", "Y") else None
        return replace(screen, asking=None, said="" if wanted else "nothing was done"), wanted
    if screen.helping:
        return replace(screen, helping=False), None
    match key:
        case "q" | "\x03" | "\x04":
            return replace(screen, over=True), None
        case "?":
            return replace(screen, helping=True), None
        case ".":
            return replace(screen, held=not screen.held), None
        case "\t" | "right" | "l":
            return _turned(screen, 1), None
        case "left" | "h" | "backtab":
            return _turned(screen, -1), None
        case "j" | "down":
            return _moved(screen, 1, seen), None
        case "k" | "up":
            return _moved(screen, -1, seen), None
        case _:
            return _asked(screen, key, seen)


def settled(screen: Screen, seen: Snapshot) -> Screen:
    """The screen over new data: rows may have gone."""
    return replace(screen, row=max(0, min(screen.row, len(seen.of(screen.panel)) - 1)))


def _turned(screen: Screen, by: int) -> Screen:
    return replace(screen, panel=PANELS[(PANELS.index(screen.panel) + by) % len(PANELS)], row=0, said="")


def _moved(screen: Screen, by: int, seen: Snapshot) -> Screen:
    return settled(replace(screen, row=screen.row + by, said=""), seen)


def _asked(screen: Screen, key: str, seen: Snapshot) -> tuple[Screen, Act | None]:
    rows = seen.of(screen.panel)
    if screen.row >= len(rows):
        return screen, None
    act = _act(key, rows[screen.row])
    if act is not None and act.question is not None:
        return replace(screen, asking=act), None
    return screen, act


def _act(key: str, row: QueueView | JobView | FailureView | PodView) -> Act | None:
    match key, row:
        case "p", QueueView():
            return Act("resume" if row.paused else "pause", row.name)
        case "p", PodView() if row.live:
            return Act("serve" if row.wish == "quiet" else "quiet", row.id)
        case "C", JobView():
            return Act("cancel", row.id, f"cancel {row.task} {row.id}?")
        case "r", FailureView() if row.failed:
            asked = f"revive {row.failed} × {row.type or 'failure'} in {row.task}?"
            return Act("revive", f"state:failed {row.filter}", asked)
        case _:
            return None
