"""Which names, tags, reasons and small numbers are allowed: checked once, at the door, before anything is written.

The pattern is narrow because a name travels far: through queue lists, URLs, metric labels, NOTIFY and file names. All
checks answer with the value, or raise a ValueError that says which rule it breaks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final, cast

MOST_TAGS: Final = 20
LONGEST_TAG: Final = 100
LONGEST_REASON: Final = 1024
MOST_SLOTS: Final = 10_000
MOST_ATTEMPTS: Final = 1000
HIGHEST_PRIORITY: Final = 100

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_RULE: Final = "1 to 128 letters, digits and _ . : -, the first a letter or digit"
_WITH_SLOTS: Final = re.compile(r"(.*):([0-9]+)", re.DOTALL)
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_LONGEST_WORD: Final = 128


def check_name(kind: str, value: str) -> str:
    """The name of a queue, task, schedule or limit (`kind` says which)."""
    # fullmatch, because $ also matches before a trailing newline.
    if not isinstance(cast("object", value), str) or not _NAME.fullmatch(value):
        raise ValueError(f"{kind} name {_shown(value)} is not allowed: {_RULE}")
    return value


def parse_queues(text: str) -> dict[str, int | None]:
    """A queue list such as "mail:10,default": each queue with its slots, None where the list gives no number.

    A trailing `:digits` always is the number of slots, so a queue whose own name ends like that must be given one.

    >>> parse_queues("mail:10, a:1:50, default")
    {'mail': 10, 'a:1': 50, 'default': None}
    """
    if not text.strip():
        raise ValueError('a queue list is needed, for example "mail:10,default"')
    queues: dict[str, int | None] = {}
    for part in text.split(","):
        found = _WITH_SLOTS.fullmatch(part.strip())
        name = check_name("queue", found[1] if found else part.strip())
        if name in queues:
            raise ValueError(f"queue {name!r} is in the list twice")
        queues[name] = _slots(name, found[2]) if found else None
    return queues


def suggest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, if any: for "did you mean"."""
    if len(word) > _LONGEST_WORD:  # difflib is quadratic, and nobody misspells that much
        return None
    by_folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def check_priority(value: int) -> int:
    return _check_range("priority", value, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)


def check_attempts(value: int) -> int:
    return _check_range("max_attempts", value, 1, MOST_ATTEMPTS)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """The tags in their order, each once."""
    if isinstance(tags, str):  # text is an iterable of one-letter tags, and never meant so
        raise ValueError(f"tags must be a list, for example [{_shown(tags)}]")
    kept = tuple(dict.fromkeys(_check_tag(tag) for tag in tags))
    if len(kept) > MOST_TAGS:
        raise ValueError(f"{len(kept)} tags are too many: at most {MOST_TAGS}")
    return kept


def check_reason(text: str) -> str:
    if not isinstance(cast("object", text), str):
        raise ValueError(f"reason must be text, not {_shown(text)}")
    if _UNSTORABLE.search(text):
        raise ValueError("reason must not contain NUL or half of a surrogate pair")
    if len(text.encode()) > LONGEST_REASON:
        raise ValueError(f"reason is too long: at most {LONGEST_REASON:,} bytes of UTF-8")
    return text


def _check_tag(tag: object) -> str:
    if not isinstance(tag, str) or not 1 <= len(tag) <= LONGEST_TAG or _UNPRINTABLE.search(tag):
        rule = f"1 to {LONGEST_TAG} characters, without control characters"
        raise ValueError(f"tag {_shown(tag)} is not allowed: {rule}")
    return tag


def _check_range(what: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{what} must be an integer from {low} to {high}, not {_shown(value)}")
    return value


def _slots(queue: str, digits: str) -> int:
    slots = int(digits) if len(digits) <= len(str(MOST_SLOTS)) else 0
    if not 1 <= slots <= MOST_SLOTS:
        raise ValueError(f"queue {queue!r} must have 1 to {MOST_SLOTS:,} slots, not {_shown(digits)}")
    return slots


def _shown(value: object) -> str:
    """A refused value, short enough for a message; only numbers and text are shown, as anything else may be secret."""
    if isinstance(value, str):
        return ascii(value if len(value) <= 40 else f"{value[:40]}...")
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**20):
        return repr(value)
    return f"a value of type {type(value).__name__}"
