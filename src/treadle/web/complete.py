"""Completion of a filter, as it is typed: its keys, then their values, from what is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..core import filter as filters

if TYPE_CHECKING:
    from .dashboard import Dashboard

MOST: Final = 20
KEYS: Final[Mapping[str, str]] = {
    "state": "scheduled, ready, running …",
    "queue": "a queue's name",
    "task": "a task's name; * at its end for a prefix",
    "tag": "a tag",
    "is": "retrying, stuck, due …",
    "error": "a part of the error's text",
    "cause": "failures with one cause",
    "age": "since it was made: >1h",
    "created": "a day, or >2h",
    "due": "<10m from now",
    "finished": "<1h ago",
    "attempt": ">3",
    "priority": ">0",
    "wait": "from due to started: >30s",
    "run": "how long it ran: >5m",
    "pod": "where it runs",
    "schedule": "what fired it",
    "parent": "the job that enqueued it",
    "unique": "its unique key",
    "reason": "a part of its reason",
    "id": "a job's id",
    "args": "args.user.id:42",
    "meta": "meta.tenant:acme",
    "result": "result.ok:true",
}


async def complete(web: Dashboard, text: str, at: int, *, payload: bool) -> dict[str, Any]:
    """What may stand where the cursor is; keys of payloads only for who may see these."""
    start = _start(text, at)
    word = text[start:at].removeprefix("-")
    start = at - len(word)
    key, colon, rest = word.partition(":")
    if not colon:
        found = [
            (f"{name}:" if name not in filters.JSON_ROOTS else f"{name}.", about)
            for name, about in KEYS.items()
            if payload or name not in filters.JSON_ROOTS
        ]
        return _answer(start, at, "key", word, found)
    begun = rest.rpartition(",")[2]
    start = at - len(begun)
    return _answer(start, at, "value", begun.removeprefix('"'), [(each, "") for each in await names_of(web, key)])


def _start(text: str, at: int) -> int:
    """Where the word under the cursor begins: after the last space that no quotes hold."""
    start, is_quoted = 0, False
    for place, letter in enumerate(text[:at]):
        if letter == '"' and text[place - 1 : place] != "\\":
            is_quoted = not is_quoted
        elif letter == " " and not is_quoted:
            start = place + 1
    return start


def _answer(start: int, end: int, kind: str, begun: str, found: Iterable[tuple[str, str]]) -> dict[str, Any]:
    wanted = begun.casefold()
    begin = [each for each in found if each[0].casefold().startswith(wanted)][:MOST]
    within = [each for each in found if wanted in each[0].casefold()[1:] and not each[0].casefold().startswith(wanted)]
    fitting = [*begin, *(within if wanted else ())][:MOST]
    items = [
        {"text": _quoted(text) if kind == "value" else text, "kind": kind, "about": about} for text, about in fitting
    ]
    return {"start": start, "end": end, "items": items}


def _quoted(text: str) -> str:
    if any(letter in text for letter in ' ",\\') or text.endswith("*"):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


async def names_of(web: Dashboard, key: str) -> list[str]:
    """The values of a key that there are, as far as they can be listed."""
    app = web.reads

    async def names(what: str, ask: Callable[[], Awaitable[Iterable[Any]]], field: str = "name") -> list[str]:
        return [getattr(each, field) for each in await web.counts.get((what,), ask)]

    match key:
        case "state":
            return list(filters.STATES)
        case "is":
            return list(filters.CONDITIONS)
        case "queue":
            return await names("queues", app.queues.list)
        case "task":
            newest = await web.counts.get(("newest",), lambda: app.jobs.find("", limit=200))
            declared = await names("tasks", app.catalog.tasks)
            return list(dict.fromkeys([*declared, *(each.task for each in newest.jobs)]))
        case "schedule":
            return await names("schedules", app.schedules.list)
        case "pod":
            return await names("pods", app.pods.list, "id")
        case "tag":
            tasks = await web.counts.get(("tasks",), app.catalog.tasks)
            newest = await web.counts.get(("newest",), lambda: app.jobs.find("", limit=200))
            tags = [*(each.tags for each in tasks), *(each.tags for each in newest.jobs)]
            return sorted({tag for each in tags for tag in each})
        case "cause":
            found = await web.counts.get(("failures", "", "", "50"), lambda: app.jobs.failures(limit=50))
            return [each.cause for each in found.groups]
        case _:
            return []
