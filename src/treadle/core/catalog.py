"""Catalog: what people say of their tasks and queues in code, for whoever is called at night.

Every pod sends it when it registers. A storage keeps the last word of each; live pods that say something else are
drift: two versions of the code run side by side, or somebody forgot a deployment. Shown, never settled by us.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec import Struct

from . import names
from .pod import Descriptor, Pod

Kind: TypeAlias = Literal["task", "queue"]

KINDS: Final[tuple[Kind, ...]] = ("task", "queue")
STALE_AFTER: Final = 30 * 86_400.0
LONGEST_TEXT: Final = 500
_FIELDS: Final = ("description", "owner", "docs", "tags", "queue")


class Entry(Struct, frozen=True, kw_only=True):
    """What a storage keeps of one task or queue."""

    kind: Kind
    name: str
    descriptor: Descriptor
    seen_at: float


class Known(Struct, frozen=True, kw_only=True):
    """One task or queue, by all that is known of it. `drift` is a line for each field in which pods disagree."""

    kind: Kind
    name: str
    descriptor: Descriptor
    pods: tuple[str, ...]  # labels of the live pods that know the task, or serve the queue
    seen_at: float | None  # None: a live pod has it, and no row says since when
    stale: bool
    drift: tuple[str, ...]


def key(kind: Kind, name: str) -> str:
    """How an entry is named in `PodCard.about`."""
    return f"{kind} {name}"


def parts(about: str) -> tuple[Kind, str] | None:
    """Kind and name of a key; None if it is none of ours."""
    given, _, name = about.partition(" ")
    return next(((kind, name) for kind in KINDS if kind == given and name), None)


def checked(
    *, description: str = "", owner: str = "", docs: str = "", tags: Iterable[str] = (), queue: str = ""
) -> Descriptor:
    """A descriptor; ValueError says which part of it is wrong."""
    for what, text in (("description", description), ("owner", owner), ("docs", docs)):
        if not isinstance(cast("object", text), str) or len(text) > LONGEST_TEXT or not _is_one_line(text):
            raise ValueError(f"{what} must be one line of at most {LONGEST_TEXT} characters")
    if docs and urlsplit(docs).scheme not in ("http", "https"):
        raise ValueError(f"docs must be a link, for example https://wiki/mail, not {docs[:60]!r}")
    return Descriptor(description=description, owner=owner, docs=docs, tags=names.check_tags(tags), queue=queue)


def first_line(doc: str | None) -> str:
    """The first line of a docstring, as a description."""
    lines = (line.strip() for line in (doc or "").splitlines())
    found = next((line for line in lines if line), "")[:LONGEST_TEXT]
    return found if _is_one_line(found) else ""


def survey(kind: Kind, entries: Iterable[Entry], pods: Sequence[Pod], now: float) -> list[Known]:
    """All tasks (or queues) that the storage or a live pod knows, by name."""
    stored = {entry.name: entry for entry in entries if entry.kind == kind}
    live = [pod for pod in pods if pod.live]
    seen = {about: pod.beat_at for pod in sorted(pods, key=lambda pod: pod.beat_at) for about in pod.card.about}
    known = {name for pod in live for name in _names(kind, pod)}
    said = {found[1] for pod in live for about in pod.card.about if (found := parts(about)) and found[0] == kind}
    return [
        _known(kind, name, stored.get(name), live, seen.get(key(kind, name), 0.0), now)
        for name in sorted(stored.keys() | known | said)
    ]


def _names(kind: Kind, pod: Pod) -> Iterable[str]:
    return pod.card.tasks if kind == "task" else pod.card.queues


def _known(kind: Kind, name: str, entry: Entry | None, live: Sequence[Pod], beat_at: float, now: float) -> Known:
    """`beat_at` is the last beat of a pod that says something of it, alive or not."""
    having = [pod for pod in live if name in _names(kind, pod)]
    told = [(pod.card.label, said) for pod in live if (said := pod.card.about.get(key(kind, name))) is not None]
    seen_at = None if entry is None else max(entry.seen_at, beat_at)
    descriptor = entry.descriptor if entry is not None else told[-1][1] if told else Descriptor()
    return Known(
        kind=kind,
        name=name,
        descriptor=descriptor,
        pods=tuple(pod.card.label for pod in having),
        seen_at=seen_at,
        stale=not having and not told and seen_at is not None and seen_at < now - STALE_AFTER,
        drift=_drift(told if entry is None else [*told, ("the storage", entry.descriptor)]) if told else (),
    )


def _drift(told: Sequence[tuple[str, Descriptor]]) -> tuple[str, ...]:
    lines: list[str] = []
    for field in _FIELDS:
        by_value: dict[str, list[str]] = {}
        for label, descriptor in told:
            by_value.setdefault(_shown(getattr(descriptor, field)), []).append(label)
        if len(by_value) > 1:
            lines.append(f"{field}: " + "; ".join(f"{value} in {', '.join(by)}" for value, by in by_value.items()))
    return tuple(lines)


def _shown(value: str | tuple[str, ...]) -> str:
    text = value if isinstance(value, str) else ", ".join(value)
    return f'"{text}"' if text else "nothing"


def _is_one_line(text: str) -> bool:
    return text.isprintable()
