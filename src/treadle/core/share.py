"""How much of something scarce one caller may hold: connections, streams, bytes of request bodies.

A fixed bound per caller is either so small that an office behind one address meets it, or so large that a few callers
take everything. So the bound follows what is left: a caller may take more as long as it holds no more than what is free
afterwards. One caller alone gets half of it all. Two that take what they can get a third each, n of them
1/(n+1) each, and as much as each of them has stays free for whoever comes next.
"""

from __future__ import annotations

from typing import Final, Literal

Verdict = Literal["granted", "share", "full"]

FEWEST_CONNECTIONS: Final = 32
OTHER_FILES: Final = 128  # databases, logs, listening sockets, what the app itself has open


def may_take(held: int, taken: int, most: int, wanted: int = 1) -> Verdict:
    """Whether a caller that holds `held` may take `wanted` more, where all callers together have `taken` of `most`.
    `share`: others may still take something; `full`: nobody may.

    >>> may_take(held=499, taken=499, most=1000), may_take(held=500, taken=500, most=1000)
    ('granted', 'share')
    """
    if taken + wanted > most:
        return "full"
    return "granted" if held + wanted <= most - taken else "share"


def most_connections(most: int, files: int | None) -> int:
    """How many connections a process serves that may have `files` files open (None: any number). A connection that
    cannot be accepted would shut out everybody, whoever holds the others."""
    return most if files is None else min(most, max(FEWEST_CONNECTIONS, files - OTHER_FILES))


class Shares:
    """Counts who holds how much of `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._held: dict[str, int] = {}

    def held(self, caller: str) -> int:
        return self._held.get(caller, 0)

    def take(self, caller: str, wanted: int = 1) -> Verdict:
        """Count it, if it is granted."""
        held = self.held(caller)
        verdict = may_take(held, self.taken, self.most, wanted)
        if verdict == "granted":
            self._held[caller] = held + wanted
            self.taken += wanted
        return verdict

    def give_back(self, caller: str, amount: int = 1) -> None:
        """A caller that holds nothing any more is forgotten: their number is bounded by what is held."""
        self.taken -= amount
        left = self._held[caller] - amount
        if left:
            self._held[caller] = left
        else:
            del self._held[caller]
