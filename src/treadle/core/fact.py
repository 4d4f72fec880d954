"""Fact: one line of `treadle doctor`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Fact(Struct, frozen=True):
    """Something that was looked at. `code` is for people to search by; `remedy` says what helps, if it is not in
    order."""

    code: str
    level: Literal["ok", "warn", "error"]
    text: str
    remedy: str = ""
