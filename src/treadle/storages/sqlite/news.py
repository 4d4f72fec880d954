"""News: what a write has to tell listeners once it is committed."""

from __future__ import annotations

from ...ports import Wake


class News:
    """Collected by the verbs inside a transaction; told only if it commits."""

    __slots__ = ("cancels", "ended", "queues", "settings")

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.ended: set[str] = set()
        self.cancels = False
        self.settings = False

    def add(self, other: News) -> None:
        self.queues |= other.queues
        self.ended |= other.ended
        self.cancels = self.cancels or other.cancels
        self.settings = self.settings or other.settings

    def clear(self) -> None:
        self.queues.clear()
        self.ended.clear()
        self.cancels = False
        self.settings = False

    def wake(self) -> Wake | None:
        """The hint to give; None if nobody could have a use for it."""
        if not (self.queues or self.ended or self.cancels or self.settings):
            return None
        return Wake(frozenset(self.queues), frozenset(self.ended), self.cancels, self.settings)
