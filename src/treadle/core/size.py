"""How much memory: bytes, or text such as "512MiB", become a number of bytes, or are refused where they are written."""

from __future__ import annotations

import re
from typing import Final, TypeAlias, cast

Size: TypeAlias = int | str

_UNITS: Final = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_TEXT: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s?([A-Za-z]*)")
_LARGEST: Final = 1 << 50
_EXAMPLE: Final = 'for example "512MiB" or "2GiB"'


def size(value: Size, name: str = "size") -> int:
    """The size in bytes; ValueError, which calls the value by `name`, if it is none.

    >>> size("512MiB")
    536870912
    """
    given = cast("object", value)  # callers without a type checker send anything
    if isinstance(given, str):
        found = _parse(given, name)
    elif isinstance(given, int) and not isinstance(given, bool):
        found = given
    else:
        raise ValueError(f"{name} must be a number of bytes or text, not {type(value).__name__}: {_EXAMPLE}")
    if not 1 <= found <= _LARGEST:
        raise ValueError(f"{name} must be at least a byte and at most a PiB: {_EXAMPLE}")
    return found


def words(number: int) -> str:
    """The size as people write it, in the largest unit that it is a whole number of: "512MiB", "1500kB", "7B".

    >>> words(536870912)
    '512MiB'
    """
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
        if number and number % _UNITS[unit] == 0:
            return f"{number // _UNITS[unit]}{unit}"
    return f"{number}B"


def _parse(text: str, name: str) -> int:
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{name} {text.strip()[:40]!r} is not a size: {_EXAMPLE}")
    number, unit = found.groups()
    if unit not in _UNITS:
        raise ValueError(f"{name} {text.strip()!r} has the unknown unit {unit!r} (KiB MiB GiB kB MB GB): {_EXAMPLE}")
    return int(float(number) * _UNITS[unit])
