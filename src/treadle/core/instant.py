"""A moment as people write it: ISO 8601 with a zone."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(text: str) -> datetime:
    """A moment in ISO 8601 with a zone. Without one it would mean another moment on another machine.

    >>> instant("2026-11-15T09:00+01:00")
    datetime.datetime(2026, 11, 15, 8, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a moment, for example 2026-11-15T09:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone: write {text}Z for UTC, or {text}+01:00")
    return moment.astimezone(UTC)
