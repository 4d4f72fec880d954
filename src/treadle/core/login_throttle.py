"""How many wrong tokens or passwords are heard before a caller has to wait. Pure: the time is given.

Wrong tries are counted per *bucket*: a group of addresses (`core.address.group_of`), or a browser that is known. A
bucket with `MOST` wrong tries in the last minute has to wait until the oldest of them is a minute old.

What a wait means depends on the secret, and so is the caller's matter (`web.tokens`, `web.basic`):

- **A token** is 256 bits of chance. Nobody guesses it at any speed, so it is always compared and a right one always
  passes: a limit that refused it would only be a way to lock its owner out, by being wrong behind the same NAT or
  proxy.
- **A password** can be guessed. While a bucket waits its password is not even compared, or the limit would limit
  nothing. And because many addresses are cheap, all buckets that are not known share `MOST_TOGETHER` wrong tries a
  minute. Known is who was right before: an attacker can use up what the unknown have, and does not lock out the known.

The table never drops a count to make room: with as many buckets as it has room for, all further ones are counted as
one. So whoever has many addresses pushes nobody out of it, least of all itself.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 10
MOST_TOGETHER: Final = 60
WINDOW: Final = 60.0
MOST_BUCKETS: Final = 10_000
_PRUNED: Final = 1.0  # between two looks for counts that are over, while the table is full
_OTHERS: Final = "\0others"  # no bucket is called so
_TOGETHER: Final = "\0together"


class Throttle:
    """Wrong tries of the last minute, by bucket. With `together`, those that are not known share a limit, too."""

    def __init__(self, *, together: int | None = None, buckets: int = MOST_BUCKETS) -> None:
        self._together = together
        self._buckets = buckets
        self._times: dict[str, list[float]] = {}
        self._pruned_at = -WINDOW

    def wait(self, bucket: str, now: float, *, known: bool = False) -> float:
        """How many seconds until another try of this bucket is heard; 0 if it may try."""
        wait = self._wait(self._counted_as(bucket), MOST, now)
        if self._together is not None and not known:
            wait = max(wait, self._wait(_TOGETHER, self._together, now))
        return wait

    def note(self, bucket: str, now: float, *, known: bool = False) -> None:
        """A try was wrong."""
        if len(self._times) >= self._buckets and not 0 <= now - self._pruned_at < _PRUNED:
            recent = {key: self._recent(key, now) for key in self._times}
            self._times = {key: times for key, times in recent.items() if times}
            self._pruned_at = now
        self._add(self._counted_as(bucket), MOST, now)
        if self._together is not None and not known:
            self._add(_TOGETHER, self._together, now)

    def _counted_as(self, bucket: str) -> str:
        return bucket if bucket in self._times or len(self._times) < self._buckets else _OTHERS

    def _wait(self, bucket: str, most: int, now: float) -> float:
        recent = self._recent(bucket, now)
        return recent[-most] + WINDOW - now if len(recent) >= most else 0.0

    def _add(self, bucket: str, most: int, now: float) -> None:
        self._times[bucket] = [*self._recent(bucket, now)[1 - most :], now]  # the last ones say how long to wait

    def _recent(self, bucket: str, now: float) -> list[float]:
        """A clock that was set back leaves tries in the future: they are of no use."""
        return [at for at in self._times.get(bucket, ()) if now - WINDOW < at <= now]
