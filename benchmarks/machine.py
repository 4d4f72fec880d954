"""The machine: what it is, how fast it syncs, and what else it was doing while we measured."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

IN_MEMORY = {"tmpfs", "ramfs"}
beside: list[Callable[[], float]] = []  # processor seconds of servers that are ours, though not our children


@dataclass(frozen=True)
class Load:
    """Processor time so far, in seconds: of everybody, and of this process with the children it has waited for."""

    at: float
    busy: float
    steal: float
    ours: float
    average: float


def load() -> Load:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, softirq, steal = (
        int(field) / os.sysconf("SC_CLK_TCK") for field in fields[:8]
    )
    own = os.times()
    return Load(
        at=time.monotonic(),
        busy=user + nice + system + irq + softirq,
        steal=steal,
        ours=own.user + own.system + own.children_user + own.children_system + sum(each() for each in beside),
        average=float(Path("/proc/loadavg").read_text().split()[0]),
    )


def foreign(before: Load, after: Load) -> dict[str, float]:
    """What others took meanwhile, as a share of the whole machine. All children must have been waited for."""
    whole = (after.at - before.at) * (os.cpu_count() or 1)
    others = (after.busy - before.busy) - (after.ours - before.ours)
    return {
        "foreign": max(0.0, others / whole),
        "steal": (after.steal - before.steal) / whole,
        "loadavg_before": before.average,
        "loadavg_after": after.average,
    }


def spin() -> float:
    """Milliseconds of processor time for always the same loop: a virtual machine's host has other guests, and only
    this shows them."""
    began = time.process_time()
    count = 0
    for number in range(200_000):
        count += number
    return (time.process_time() - began) * 1e3


def wait_for_quiet(limit: float, patience: float) -> None:
    """Wait until others take less than `limit` of the machine for half a second, but not for ever."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        before = load()
        time.sleep(0.5)
        if foreign(before, load())["foreign"] < limit:
            return


def facts(folder: Path) -> dict[str, str]:
    kind, device = filesystem(folder)
    wait_for_quiet(0.1, 10.0)  # the syncs are timed once, before everything else
    return {
        "processor": f"{_field('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores",
        "memory": f"{int(_field('/proc/meminfo', 'MemTotal').split()[0]) / 1024**2:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": f"{kind} on {device}",
        "fdatasync of 8 kB": sync_times(folder, 100, 0.0),
        "the same after 30 ms of rest": sync_times(folder, 50, 0.03),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
    }


def filesystem(folder: Path) -> tuple[str, str]:
    """(type, device) of the mount that a folder is on."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    held = [(device, at, kind) for device, at, kind in mounts if folder.resolve().is_relative_to(at)]
    device, _, kind = max(held, key=lambda mount: len(mount[1]))
    return kind, device


def sync_times(folder: Path, rounds: int, rest: float) -> str:
    """How long a sync takes that overwrites: at full speed, or woken up for it, as a lone job finds it."""
    path = folder / "sync-probe"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(file, b"x" * 8192 * rounds)
        os.fsync(file)
        times = []
        for number in range(rounds):
            time.sleep(rest)
            began = time.perf_counter()
            os.pwrite(file, b"y" * 8192, 8192 * number)
            os.fdatasync(file)
            times.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return f"p50 {statistics.median(times) * 1e3:.2f} ms, p90 {statistics.quantiles(times, n=10)[8] * 1e3:.2f} ms"


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"
