"""A search through every state that a small protocol can reach, nearest first: what it finds wrong comes with the
shortest way there.

A Model is written by hand: where it starts, which steps lead from one state to others, and which states are wrong. Two
kinds of wrong are looked for. A state that must never be: `wrong` says why. And where a model says when it is `over`, a
state from which it cannot get there any more though no further fault happens. The second is less than a promise that it
will get there; that is stated as a bound that must not be passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

# What a step is called, and the state it leads to.
Step = tuple[str, Any]


class Model:
    """A protocol. States are hashable values; a step whose name begins with "fault" is nobody's wish."""

    start: Hashable

    def steps(self, state: Any) -> Iterable[Step]:
        raise NotImplementedError

    def wrong(self, state: Any) -> str | None:
        """Why this state must not be; None if it may."""
        raise NotImplementedError

    def over(self, state: Any) -> bool | None:
        """Whether all work is done; None: the model does not say."""
        return None


class Explored(NamedTuple):
    states: int
    steps: int
    why: str | None = None  # None: nothing is wrong
    way: tuple[str, ...] = ()


def explore(model: Model, most: int = 200_000) -> Explored:
    """Visit every state that can be reached, or the nearest that is wrong."""
    came_from: dict[Any, tuple[Any, str] | None] = {model.start: None}
    back: dict[Any, list[Any]] = {}  # by steps that are no faults
    queue: deque[Any] = deque([model.start])
    steps = 0
    while queue:
        state = queue.popleft()
        if (why := model.wrong(state)) is not None:
            return Explored(len(came_from), steps, why, _way(came_from, state))
        for name, following in model.steps(state):
            steps += 1
            if not name.startswith("fault"):
                back.setdefault(following, []).append(state)
            if following not in came_from:
                came_from[following] = (state, name)
                queue.append(following)
        if len(came_from) > most:
            raise OverflowError(f"more than {most} states: bound the model")
    if model.over(model.start) is not None:
        hopeful = _closed(back, [state for state in came_from if model.over(state)])
        for state in came_from:  # in the order of finding: the nearest first
            if state not in hopeful:
                return Explored(len(came_from), steps, "it never ends", _way(came_from, state))
    return Explored(len(came_from), steps)


def _closed(back: dict[Any, list[Any]], ends: list[Any]) -> set[Any]:
    """All states from which one of the ends can be reached."""
    found = set(ends)
    queue = deque(ends)
    while queue:
        for state in back.get(queue.popleft(), ()):
            if state not in found:
                found.add(state)
                queue.append(state)
    return found


def _way(came_from: dict[Any, tuple[Any, str] | None], state: Any) -> tuple[str, ...]:
    return tuple(reversed(list(_backwards(came_from, state))))


def _backwards(came_from: dict[Any, tuple[Any, str] | None], state: Any) -> Iterator[str]:
    while (before := came_from[state]) is not None:
        state, name = before
        yield name
