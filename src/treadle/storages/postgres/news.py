"""News: what a write has to tell listeners once it is committed."""

from __future__ import annotations

from ...ports import Wake


class News:
    """Collected by the verbs; told only if they commit. `due` are the queues in which something may be claimed now:
    they are told to other processes too."""

    __slots__ = ("cancels", "due", "ended", "queues", "settings")

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.due: set[str] = set()
        self.ended: set[str] = set()
        self.cancels = False
        self.settings = False

    def wake(self) -> Wake | None:
        """The hint to give; None if nobody could have a use for it."""
        queues = self.queues | self.due
        if not (queues or self.ended or self.cancels or self.settings):
            return None
        return Wake(frozenset(queues), frozenset(self.ended), self.cancels, self.settings)
