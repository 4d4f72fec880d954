"""What a few typed words may mean: verbs with their subjects, the likeliest first.

Each word must be the beginning of a word of the verb (its own name, or one that people use elsewhere: "retry" finds
revive) or a part of the subject's name. So "pause mail" is the verb pause upon everything with mail in its name, "mail"
is every verb upon those, and "pause" is that verb upon whatever comes first.

There may be twenty thousand subjects: their names are looked at once, whatever the number of verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 24
MOST_OF_A_VERB: Final = 8
MOST_WORDS: Final = 6


def always(_: object) -> bool:
    """The verb makes sense for every subject."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Generic[T]):
    """`title` has `{}` for the subject. `to` says where it leads: a path, and its query."""

    title: str
    to: Callable[[T], tuple[str, dict[str, Any]]]
    others: str = ""  # words that people use elsewhere
    fits: Callable[[T], bool] = always
    asks: bool = True  # it leads to a question; else to a page

    @property
    def words(self) -> list[str]:
        return f"{self.title.replace('{}', '')} {self.others}".casefold().split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """Subjects of one kind, those first that matter most, and what can be done with them."""

    word: str
    subjects: Sequence[T]
    name: Callable[[T], str]
    verbs: Sequence[Verb[T]]


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of the palette."""

    title: str
    kind: str
    path: str
    query: dict[str, Any]
    asks: bool
    order: tuple[Any, ...] = field(compare=False, default=())


def choose(text: str, kinds: Sequence[Kind[Any]], *, most: int = MOST) -> list[Choice]:
    """What the words may mean, at most so many; nothing for no words."""
    words = text.casefold().split()[:MOST_WORDS]
    if not words:
        return []
    found = [choice for kind in kinds for choice in _of_kind(kind, words)]
    return sorted(found, key=lambda choice: choice.order)[:most]


def _of_kind(kind: Kind[Any], words: Sequence[str]) -> list[Choice]:
    by_words: dict[int, list[tuple[int, Any, str]]] = {}
    for place, each in enumerate(kind.subjects):
        name = kind.name(each).casefold()
        held = sum(1 << n for n, word in enumerate(words) if word in name)
        by_words.setdefault(held, []).append((place, each, name))
    groups = sorted(by_words.items(), key=lambda group: -group[0].bit_count())
    found: list[Choice] = []
    for order, verb in enumerate(kind.verbs):
        said = sum(1 << n for n, word in enumerate(words) if any(own.startswith(word) for own in verb.words))
        named = " ".join(word for n, word in enumerate(words) if not said >> n & 1)
        needed = (1 << len(words)) - 1 & ~said
        fitting = ((held, row) for held, rows in groups if held & needed == needed for row in rows if verb.fits(row[1]))
        for number, (held, (place, each, name)) in enumerate(fitting):
            if number == MOST_OF_A_VERB:
                break
            path, query = verb.to(each)
            rank = (-said.bit_count(), name != named, not name.startswith(named), -held.bit_count(), order, place)
            title = verb.title.replace("{}", kind.name(each))
            found.append(Choice(title, kind.word, path, query, verb.asks, rank))
    return found
