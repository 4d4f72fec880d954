"""What lies between a worker and its server cuts, delays, flaps and goes silent."""

from __future__ import annotations

import random
import time

import pytest

from tests.journeys.stage import Worker
from tests.tcp_proxy import Proxy

from .stage import PostgresStage

WRITES = [b"insert_1", b".claim_", b"finish_2", b"beat_pod_1", b"commit"]


@pytest.mark.parametrize("when", ["before", "answer"])
def test_a_connection_cut_in_the_middle_of_a_commit_loses_and_doubles_nothing(
    proxied: PostgresStage, proxy: Proxy, when: str
) -> None:
    """C6, D1. Either the statement never arrives, or it is committed and nobody hears so: the client cannot tell which.
    Whatever it was, sending it again (or asking for it by its token) settles it."""
    stage = proxied
    stage.start_many()
    traps = {words: proxy.on(words, when, times=6, chance=0.3) for words in WRITES}  # type: ignore[arg-type]
    with stage.load():
        stage.wait(
            lambda: all(trap.left == 0 for words, trap in traps.items() if words not in (b"beat_pod_1", b"commit")),
            "every write was cut a few times",
        )
        stage.wait(lambda: traps[b"beat_pod_1"].sprung, "a beat was cut")
    proxy.clear()
    stage.figures["cuts"] = sum(trap.sprung for trap in traps.values())
    stage.drain()
    assert stage.all_live()
    jobs = stage.jobs()
    assert {job["state"] for job in jobs.values()} == {"succeeded"}
    if when == "answer":
        # What was committed without an answer was taken up by its token: it costs no attempt, and no time.
        assert max(job["crashes"] for job in jobs.values()) == 0
        stage.figures["attempts beyond the first"] = sum(job["attempt"] - 1 for job in jobs.values())


@pytest.mark.slow
def test_a_worker_that_can_speak_and_not_hear_is_replaced_and_joins_again(stage: PostgresStage, proxy: Proxy) -> None:
    """D2, D4, for longer than a call's deadline and a lease. It fences itself, what it held runs elsewhere, and when it
    hears again it is told that it was lost, and serves on under a new name."""
    deaf = stage.start(url=f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres", call=1.5)
    held = stage.act("gate", gate="go", count=4, until_attempt=1)
    stage.wait(stage.began(*held), "jobs run")
    well = stage.start(call=1.5)
    with stage.load():
        proxy.mute()
        muted = time.time()
        stage.wait(lambda: len(stage.claims(*held)) >= 8, "what it held was claimed by the other", within=15)
        moves = [move for move in stage.claims(*held) if move.at > muted]
        stage.tally.recoveries.extend(move.at - muted for move in moves)
        stage.wait(lambda: deaf.said("a beat was not answered"), "it notices")
        claims = [move for move in stage.claims() if move.pod in stage.pods_of(deaf.pid) and move.at > muted + 3.0]
        assert not claims, "it must not claim when nobody has answered it for a lease"
        proxy.unmute()
        stage.figures["joined again after, s"] = stage.wait(
            lambda: _has_run(stage, deaf, since=muted), "it works again", within=20
        )
    stage.open_gate("go")
    stage.drain()
    assert deaf.lives
    assert well.lives
    assert {stage.state(id) for id in held} == {"succeeded"}
    assert {move.pod for move in moves} == set(stage.pods_of(well.pid))


def _has_run(stage: PostgresStage, worker: Worker, since: float) -> bool:
    begun = time.monotonic() - (time.time() - since)
    return any(each.pid == worker.pid and each.at > begun + 1.0 for each in stage.effects())


def test_latency_makes_it_slow_and_nothing_else(proxied: PostgresStage, proxy: Proxy) -> None:
    """D5: 300 to 900 ms for each round trip, and a connect has several. Nobody is rescued, nothing runs twice."""
    stage = proxied
    for worker in [stage.start(call=10.0, lease=6.0, beat=2.0, ready=False) for _ in range(2)]:
        stage.wait(worker.is_serving, "it serves")
    stage.act(count=16)
    stage.drain()  # each has what connections it needs
    proxy.delay = (0.15, 0.45)
    begun = time.time()
    stage.act("sleep", seconds=0.1, count=60)
    time.sleep(4.0)  # two beats
    stage.figures["ended meanwhile"] = stage.ended_since(begun)
    stage.wait(lambda: stage.ended_since(begun) > 10, "there is progress", within=15)
    proxy.delay = None
    stage.drain()
    assert stage.all_live()
    assert stage.lost_pods() == 0
    assert {(job["state"], job["attempt"]) for job in stage.jobs().values()} == {("succeeded", 1)}


def test_a_flapping_network_lets_work_through_without_a_storm(proxied: PostgresStage, proxy: Proxy) -> None:
    """D6: away for half a second in every second."""
    stage = proxied
    stage.start_many()
    with stage.load(count=2):
        # On a busy machine half a second may be too short to connect in: first see how long it takes here.
        _away(proxy)
        there = max(0.5, 2 * stage.resumes("half a second without a network", within=60))
        begun, seen = time.time(), proxy.accepted
        for _ in range(4):
            _away(proxy)
            time.sleep(there)
    through, seconds = stage.ended_since(begun), 4 * (0.5 + there)
    stage.figures["ended while it flapped"] = through
    stage.figures["connects a second"] = (proxy.accepted - seen) / seconds
    assert through > 0, "there is progress"
    # Two workers and the driver, with about five lines each that try again a few times each second.
    assert proxy.accepted - seen < seconds * 150
    stage.drain()
    assert stage.all_live()


def _away(proxy: Proxy) -> None:
    proxy.refuse = True
    proxy.cut()
    time.sleep(0.5)
    proxy.refuse = False


def test_cuts_at_any_instant(proxied: PostgresStage, proxy: Proxy) -> None:
    """D1, thirty times."""
    stage = proxied
    stage.start_many()
    cut = 0
    with stage.load():
        for _ in range(30):
            time.sleep(random.uniform(0.0, 0.2))
            cut += proxy.cut()
    stage.figures["connections cut"] = cut
    stage.drain()
    assert stage.all_live()
