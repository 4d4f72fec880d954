"""Which event loop a worker gets, and how calm its collector is."""

from __future__ import annotations

import asyncio
import builtins
import subprocess
import sys
from typing import Any

import pytest
import uvloop

from treadle.core.errors import ConfigError
from treadle.runtime import loops


def test_auto_takes_uvloop_where_it_is_installed() -> None:
    assert loops.maker("auto") is uvloop.new_event_loop
    assert loops.maker("uvloop") is uvloop.new_event_loop
    assert loops.maker("asyncio") is asyncio.new_event_loop


def test_without_uvloop_auto_is_pythons_own_and_an_explicit_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert loops.maker("auto") is asyncio.new_event_loop
    with pytest.raises(ConfigError, match=r"pip install 'treadle\[uvloop\]'"):
        loops.maker("uvloop")


def test_the_collector_leaves_alone_what_was_there_at_the_start() -> None:
    script = (
        "import gc; from treadle.runtime import loops; loops.calm_collector(); "
        "assert gc.get_freeze_count() > 1000; assert gc.get_threshold() == loops.GC_THRESHOLDS; assert gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
