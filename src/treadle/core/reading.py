"""Reading: how one pod and its storage fared in one minute (or, averaged, in one hour); and how deep queues were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from .rollup import floor

FLEET: Final = ""
"""The pod of a reading that is of no single pod: the leader's, of all queues."""


class Depth(NamedTuple):
    """How much lay in a queue."""

    ready: int
    scheduled: int
    running: int


class Reading(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pod measured of itself. Bytes and seconds; None where it cannot be known."""

    resolution: int
    at: float
    pod: str
    label: str = ""
    cpu: float = 0.0  # share of one core
    rss: int = 0
    lag: float = 0.0  # of the event loop, the worst that was seen
    threads: int = 0
    slots: int = 0
    used: float = 0.0  # slots with a run in them
    disk_free: int | None = None
    read_seconds: float | None = None  # what a storage call took on average
    write_seconds: float | None = None
    storage_bytes: int | None = None
    wal_bytes: int | None = None
    connections: int | None = None
    depths: dict[str, Depth] = {}  # by queue, and under no name all of them together; only the fleet's reading has it

    @property
    def key(self) -> tuple[int, float, str]:
        return self.resolution, self.at, self.pod


def fold_readings(readings: Iterable[Reading], resolution: int) -> list[Reading]:
    """Coarser readings of each pod: what is used is averaged, of what is scarce the worst is kept."""
    parts: dict[tuple[float, str], list[Reading]] = {}
    for each in readings:
        parts.setdefault((floor(each.at, resolution), each.pod), []).append(each)
    return [_folded(parts[key], resolution, *key) for key in sorted(parts)]


def _folded(parts: list[Reading], resolution: int, at: float, pod: str) -> Reading:
    last = parts[-1]
    return Reading(
        resolution=resolution,
        at=at,
        pod=pod,
        label=last.label,
        cpu=sum(each.cpu for each in parts) / len(parts),
        rss=max(each.rss for each in parts),
        lag=max(each.lag for each in parts),
        threads=max(each.threads for each in parts),
        slots=last.slots,
        used=sum(each.used for each in parts) / len(parts),
        disk_free=min((each.disk_free for each in parts if each.disk_free is not None), default=None),
        read_seconds=_mean([each.read_seconds for each in parts if each.read_seconds is not None]),
        write_seconds=_mean([each.write_seconds for each in parts if each.write_seconds is not None]),
        storage_bytes=last.storage_bytes,
        wal_bytes=max((each.wal_bytes for each in parts if each.wal_bytes is not None), default=None),
        connections=max((each.connections for each in parts if each.connections is not None), default=None),
        depths=deepest(each.depths for each in parts),
    )


def deepest(found: Iterable[dict[str, Depth]]) -> dict[str, Depth]:
    """The most that ever lay in each queue."""
    most: dict[str, Depth] = {}
    for depths in found:
        for queue, depth in depths.items():
            most[queue] = Depth(*map(max, depth, most.get(queue, depth)))
    return most


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
