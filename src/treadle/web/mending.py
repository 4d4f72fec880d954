"""Mending: the button of each act that an item of attention names. It leads to a route of the dashboard that is there
anyway, and is shown to whoever may ask that route."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct, field

from ..core.attention import Act, Verb
from .access import Action


class Way(Struct, frozen=True):
    """How an act is done. `kind`: `act` is sent at once, `ask` opens a question, `page` is a form that answers with a
    page, `link` only shows something."""

    word: str
    kind: Literal["act", "ask", "page", "link"]
    action: Action
    path: str  # {} is the subject
    icon: str | None = None
    query: Mapping[str, str] = field(default_factory=dict[str, str])  # {} likewise

    @property
    def method(self) -> Literal["GET", "POST"]:
        return "POST" if self.kind in ("act", "page") else "GET"


WAYS: Final[Mapping[Verb, Way]] = {
    "resume": Way("Resume", "act", "resume", "/queues/{}/resume", "play"),
    "warm": Way("End cool-down", "act", "resume", "/queues/{}/warm"),
    "rate": Way("Change the rate", "ask", "set_queue", "/queues/{}/settings"),
    "scale": Way("Scale", "ask", "set_queue", "/queues/{}/scale"),
    "revive": Way(
        "Revive the group", "ask", "revive", "/operations/new", "retrying", {"act": "revive", "filter": "{}"}
    ),
    "jobs": Way("Show the jobs", "link", "see", "/jobs", query={"filter": "{}"}),
    "stacks": Way("Show the stacks", "page", "stacks", "/pods/{}/stacks"),
    "fire": Way("Fire now", "act", "fire", "/schedules/{}/fire", "play"),
    "edit": Way("Edit", "ask", "set_schedule", "/schedules/{}/edit"),
}


class Button(Struct, frozen=True):
    way: Way
    subject: str
    path: str
    query: Mapping[str, str]


def buttons(acts: Iterable[Act], may: Callable[[Action], bool]) -> list[Button]:
    """Those that may be pressed, in the order of the acts."""
    return [
        Button(
            way,
            act.subject,
            way.path.replace("{}", act.subject),
            {name: value.replace("{}", act.subject) for name, value in way.query.items()},
        )
        for act in acts
        if may((way := WAYS[act.verb]).action)
    ]
