"""On the path of a worker whose host has a wrong clock: `SOAK_SKEW` seconds, before anything else is imported."""

import os
import time

_right = time.time
_skew = float(os.environ.get("SOAK_SKEW", "0"))


def _wrong() -> float:
    return _right() + _skew


def _wrong_ns() -> int:
    return int(_wrong() * 1e9)


time.time = _wrong
time.time_ns = _wrong_ns
