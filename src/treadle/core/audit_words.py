"""The words of an audit line: values as people write them ("rate 1/m", "keep_failed 30d", "–" for what is unset), never
as a program prints them. Lines that an older version wrote with bare values are read back into the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from . import duration, settings
from .job import RetryOverride

UNSET_WORD: Final = "–"
_RETRY: Final = {field: name for name, field in settings.RETRY.items()}
_OLD_RETRY: Final = re.compile(r"retry (?:RetryOverride\((?P<parts>[^()]*)\)|None(?=,|;| \(|$))")
_PART: Final = re.compile(r"(\w+)=('[a-z]*'|[0-9.e+-]+|None)")


def moment(seconds: float) -> str:
    """
    >>> moment(1_794_823_200.0)
    '2026-11-16 10:00:00 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):  # a damaged row
        return UNSET_WORD


_WORDS: Final[Mapping[str, Callable[[Any], str]]] = {
    **{each.name: each.words for each in settings.SETTINGS},
    "paused_until": moment,
    "cool_until": moment,
    "run_at": moment,
    "delay": duration.words,
}
_OLD: Final = re.compile(rf"\b({'|'.join(_WORDS)}) (None|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?=,|;| \(|$)")


def value(name: str, given: Any) -> str:
    """One value by its name.

    >>> value("rate", 1 / 60), value("max_workers", None), value("keep_failed", 86_400.0)
    ('1/m', '–', '1d')
    """
    return UNSET_WORD if given is None else _WORDS.get(name, str)(given)


def part(name: str, given: object) -> str:
    """A name and its value. Instants of a queue are told as what they mean.

    >>> part("rate", 1.5), part("paused_until", None), part("cool_until", None)
    ('rate 90/m', 'until resumed', 'cool-down ended')
    """
    if name == "paused_until":
        return "until resumed" if given is None else f"until {value(name, given)}"
    if name == "cool_until":
        return "cool-down ended" if given is None else f"cool-down until {value(name, given)}"
    return f"{name} {value(name, given)}"


def said(given: Mapping[str, object]) -> list[str]:
    """Names and values, each as one part of a line. What a queue says about retries is one value of the row: its parts
    are named as the settings are."""
    parts: list[str] = []
    for name, each in given.items():
        if name != "retry":
            parts.append(part(name, each))
        elif isinstance(each, RetryOverride):
            known = {_RETRY[field]: getattr(each, field) for field in each.__struct_fields__}
            parts += [part(key, own) for key, own in known.items() if own is not None]
        else:
            parts.append(f"{', '.join(settings.RETRY)} {UNSET_WORD}")
    return parts


def mended(detail: str) -> str:
    """The detail of a line, with what an older version wrote as bare values in words; others stay as they are.

    >>> mended("rate 0.016666666666666666, max_workers None (operator, request 1)")
    'rate 1/m, max_workers – (operator, request 1)'
    """
    if "None" not in detail and not any(letter.isdigit() for letter in detail):
        return detail
    return _OLD.sub(_worded, _OLD_RETRY.sub(_retry, detail))


def _worded(match: re.Match[str]) -> str:
    name, text = match[1], match[2]
    if text == "None":
        return part(name, None)
    number = float(text)
    return part(name, int(number) if number.is_integer() else number)


def _retry(match: re.Match[str]) -> str:
    if match["parts"] is None:
        return ", ".join(said({"retry": None}))
    found = {name: text.strip("'") for name, text in _PART.findall(match["parts"]) if text != "None"}
    return ", ".join(f"{_RETRY.get(name, name)} {text}" for name, text in found.items())
