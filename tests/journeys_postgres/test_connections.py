"""How many connections a pod has. docs/postgres.md says it, and databases are planned by it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres_server import Server
from treadle.storages.postgres.desk import KEEP_ASIDE

from .stage import PostgresStage

ESTABLISHED = "01"


def connections(pid: int, port: int) -> int:
    """How many a process has to a server's port."""
    remote = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(remote) and row[3] == ESTABLISHED}
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(each.readlink()) in inodes
        except OSError:  # closed meanwhile
            continue
    return found


@pytest.mark.slow
def test_a_pod_has_four_connections_and_five_when_busy_or_leading(
    stage_on: Callable[..., PostgresStage], server: Server
) -> None:
    """With many slots. What it needed to begin is given back, and what it needs for a moment."""
    stage = stage_on(server.tcp_url)
    leader = stage.start(queues="default:50")
    stage.wait(lambda: stage.ask("select 1 from leader where holder <> ''"), "the first leads")
    follower = stage.start(queues="default:50")

    def counts() -> tuple[int, int]:
        return connections(leader.pid, server.port), connections(follower.pid, server.port)

    time.sleep(KEEP_ASIDE)
    stage.wait(lambda: counts()[0] <= 5 and counts()[1] == 4, "nothing is kept that is not needed", within=30)
    seen: list[tuple[int, int]] = []
    with stage.load(count=20):
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            seen.append(counts())
            time.sleep(0.05)
    stage.drain()
    for n, name in enumerate(("leader", "pod")):
        usual = statistics.median(each[n] for each in seen)
        stage.figures[f"connections of a busy {name}"] = usual
        assert usual <= 5, seen
    assert max(max(each) for each in seen) <= 7, seen  # for a moment, on a loaded machine
