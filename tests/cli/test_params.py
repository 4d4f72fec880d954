from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from treadle.cli import params


def test_a_moment_needs_a_zone() -> None:
    assert params.instant("2026-11-15T09:00+01:00") == datetime(2026, 11, 15, 8, tzinfo=UTC)
    assert params.instant("2026-11-15T09:00Z") == datetime(2026, 11, 15, 9, tzinfo=UTC)
    with pytest.raises(ValueError, match="no zone: write 2026-11-15T09:00Z"):
        params.instant("2026-11-15T09:00")
    with pytest.raises(ValueError, match="for example"):
        params.instant("tomorrow")


def test_until_is_a_moment_or_a_duration_from_now() -> None:
    soon = params.instant_or_duration("2h") - datetime.now(UTC)
    assert timedelta(hours=1, minutes=59) < soon <= timedelta(hours=2)
    assert params.instant_or_duration("2026-11-15T09:00Z").hour == 9
    with pytest.raises(ValueError, match="neither"):
        params.instant_or_duration("later")


def test_a_limit_is_a_number_or_none() -> None:
    assert params.count_or_none("0") == 0
    assert params.count_or_none("None") is None
    with pytest.raises(ValueError, match="neither"):
        params.count_or_none("-1")


def test_what_the_core_refuses_is_a_usage_error() -> None:
    with pytest.raises(click.BadParameter, match="1h30m"):
        params.DURATION.convert("soon", None, None)
    assert params.DURATION.convert("1m", None, None) == 60.0
    with pytest.raises(click.BadParameter, match="not allowed"):
        params.QUEUE.convert("-mail", None, None)
