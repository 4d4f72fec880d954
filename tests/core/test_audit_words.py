"""Audit lines say values as people write them, also those that an older version wrote."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from treadle.core import audit_words, settings
from treadle.core.audit import AuditLine, of_queue
from treadle.core.job import NO_TIMEOUT, QueueChange, RetryOverride
from treadle.core.queue import FOR_EVER
from treadle.core.records import audit_view


def test_the_examples() -> None:
    assert doctest.testmod(audit_words).failed == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 1 / 60}, "rate 1/m"),
        ({"rate": None, "burst": None}, "rate –, burst –"),
        ({"max_workers": 10}, "max_workers 10"),
        ({"max_workers": 0}, "max_workers 0"),
        ({"timeout": 900.0}, "timeout 15m"),
        ({"timeout": NO_TIMEOUT}, "timeout off"),
        ({"keep_failed": FOR_EVER, "keep_succeeded": 3600.0}, "keep_failed forever, keep_succeeded 1h"),
        ({"aging": 60.0}, "aging 1m"),
        ({"cool_until": None}, "cool-down ended"),
        ({"cool_until": 1_794_823_200.0}, "cool-down until 2026-11-16 10:00:00 UTC"),
        ({"paused_until": 1e300}, "until –"),
        ({"paused_until": None}, "until resumed"),
        ({"retry": None}, "max_attempts, backoff, backoff_base, backoff_cap –"),
        ({"retry": RetryOverride(max_attempts=5, base=30.0, curve="linear")},
         "max_attempts 5, backoff_base 30s, backoff linear"),
        ({"queue": "bulk", "priority": 5, "delay": 600.0}, "queue bulk, priority 5, delay 10m"),
    ],
)  # fmt: skip
def test_values_in_words(given: dict[str, Any], told: str) -> None:
    assert ", ".join(audit_words.said(given)) == told
    assert audit_words.mended(told) == told


@pytest.mark.parametrize(
    ("old", "told"),
    [
        ("rate 0.016666666666666666", "rate 1/m"),
        ("rate 2.0, (admin, request 7)", "rate 2/s, (admin, request 7)"),
        ("max_workers None (admin, request 7)", "max_workers – (admin, request 7)"),
        ("keep_failed -1.0, timeout 0.0", "keep_failed forever, timeout off"),
        ("paused_until 1794823200.25", "until 2026-11-16 10:00:00 UTC"),
        ("paused_until None, (admin, request 7)", "until resumed, (admin, request 7)"),
        ("started; delay 600.0; matched 7, changed 6", "started; delay 10m; matched 7, changed 6"),
        ("retry RetryOverride(max_attempts=5, base=30.0, cap=None, curve='linear')",
         "max_attempts 5, backoff_base 30s, backoff linear"),
        ("retry None, rate 1.5", "max_attempts, backoff, backoff_base, backoff_cap –, rate 90/m"),
        ("", ""),
        ("started", "started"),
        ("every 90s shop.None", "every 90s shop.None"),
        ("2 of 5 (operator, request 019a)", "2 of 5 (operator, request 019a)"),
    ],
)  # fmt: skip
def test_old_lines_are_told_in_the_same_words(old: str, told: str) -> None:
    assert audit_words.mended(old) == told
    assert audit_words.mended(told) == told
    assert audit_view(AuditLine(id="1", act="queues.set", detail=old)).detail == told


def test_every_setting_of_a_queue_has_words() -> None:
    """No value that a setting can have is written as a program prints it."""
    for each in settings.SETTINGS:
        for given in (each.example, None):
            change = settings.change("mail", settings.read({each.name: given}), None, None)
            line = of_queue(QueueChange(**{**_fields(change), "audit": "1"}))
            assert line is not None
            assert not any(word in line.detail for word in ("None", "True", "(", "'")), line.detail


def _fields(change: QueueChange) -> dict[str, Any]:
    return {name: getattr(change, name) for name in change.__struct_fields__}
