"""The Heart: the trust window, what it passes on, and its watch over the loop. Its thread is not started here: `beat`
and `look` are its steps."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from treadle.config import Timing
from treadle.core.pod import PodCard
from treadle.ports import Beaten
from treadle.runtime.heart import Heart
from treadle.storages.memory.storage import MemoryStorage

pytestmark = pytest.mark.anyio

TIMING = Timing(lease=30.0, beat=10.0, loop_lag=0.05)


class Heard:
    def __init__(self) -> None:
        self.answers: list[Beaten] = []
        self.stuck: list[float] = []


def answering(now: float) -> Any:
    async def beat(*args: Any, **kwargs: Any) -> Beaten:
        return Beaten(now=now)

    return beat


def a_heart(storage: Any, heard: Heard, limit: float = 1e9, **options: Any) -> Heart:
    heart = Heart(
        storage=storage,
        timing=TIMING,
        chance=random.Random(1),
        reports=tuple,
        heard=lambda beaten, runs: heard.answers.append(beaten),
        loop_limit=lambda: limit,
        stuck=heard.stuck.append,
        **options,
    )
    heart.serve("pod-1", time.monotonic())
    return heart


async def a_storage() -> MemoryStorage:
    storage = MemoryStorage()
    await storage.register(
        PodCard(id="pod-1", label="p", host="h", pid=1, version="", queues={"q": 1}, tasks=(), lease=30.0)
    )
    return storage


class Deaf(MemoryStorage):
    """Answers nothing; remembers whether it was asked to renew."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals: list[bool] = []
        self.answers = False

    async def beat(self, pod: str, lease: float, runs: Any, *, renew: bool = True, **said: Any) -> Beaten:
        self.renewals.append(renew)
        if not self.answers:
            raise ConnectionError("no answer")
        return Beaten(now=0.0)


async def test_a_beat_renews_and_passes_on_what_it_heard() -> None:
    storage, heard = await a_storage(), Heard()
    heart = a_heart(storage, heard)
    await heart.beat()
    await asyncio.sleep(0)
    assert [beaten.lost for beaten in heard.answers] == [False]
    assert heart.may_claim()


async def test_a_pod_whose_beats_go_unanswered_fences_itself_before_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five seconds before the end, counted from when the last answered beat was sent; then it asks without renewing,
    because in a one-way partition its beats would arrive for ever."""
    storage = Deaf()
    heart = a_heart(storage, Heard())
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 24.9)
    assert heart.may_claim()
    await heart.beat()
    monkeypatch.setattr(time, "monotonic", lambda: now + 25.1)
    assert not heart.may_claim()
    await heart.beat()
    assert storage.renewals == [True, False]
    storage.answers = True
    await heart.beat()
    assert heart.may_claim()  # an answer came, and nothing was rescued: it goes on under the old lease
    await heart.beat()
    assert storage.renewals == [True, False, False, True]


async def test_a_lost_pod_may_not_claim_on_the_strength_of_that_answer() -> None:
    storage, heard = await a_storage(), Heard()
    heart = a_heart(storage, heard)
    storage._pods["pod-1"].lost = True
    before = heart.beat_age
    await heart.beat()
    await asyncio.sleep(0)
    assert heard.answers[0].lost
    assert heart.beat_age >= before


async def test_a_blocked_loop_is_reported_with_its_stack_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    heart = a_heart(await a_storage(), Heard())
    heart.look()
    time.sleep(0.06)  # the loop is blocked: the pulse cannot run
    heart.look()
    heart.look()
    reports = [record for record in caplog.records if "blocked" in record.message]
    assert len(reports) == 1
    assert "test_heart.py" in reports[0].message
    await asyncio.sleep(0)
    assert heart.lag >= 0.05


async def test_the_longest_lag_is_told_once_with_who_was_on_the_loop() -> None:
    heart = a_heart(await a_storage(), Heard(), on_loop=lambda: "greedy")
    assert heart.worst_lag() == (0.0, "")
    heart.look()
    time.sleep(0.06)
    heart.look()
    await asyncio.sleep(0)
    heart.look()
    await asyncio.sleep(0)  # all is well again
    lag, task = heart.worst_lag()
    assert lag >= 0.06 and task == "greedy"
    lag, task = heart.worst_lag()
    assert lag < 0.05 and task == ""


async def test_how_far_this_clock_is_from_the_storages(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = await a_storage()
    heart = a_heart(storage, Heard())
    await heart.beat()
    assert abs(heart.skew) < 0.5
    real = time.time
    now = (await storage.time()) + 7.0
    monkeypatch.setattr(storage, "beat", answering(now))
    await heart.beat()
    assert -8.0 < heart.skew + (now - real() - 7.0) < -6.0
    heart._note_skew(100.0, 4.0, 103.0)  # the answer's way may account for it
    assert heart.skew == 0.0


async def test_a_loop_stuck_beyond_the_limit_ends_the_renewing() -> None:
    storage, heard = Deaf(), Heard()
    heart = a_heart(storage, heard, limit=0.05)
    heart.look()
    time.sleep(0.06)
    heart.look()
    assert len(heard.stuck) == 1
    assert not heart.may_claim()
    storage.answers = True
    await heart.beat()
    assert storage.renewals == [False]
    assert not heart.may_claim()


async def test_a_loop_in_time_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    heart = a_heart(await a_storage(), Heard())
    for _ in range(5):
        heart.look()
        await asyncio.sleep(0)
    assert not caplog.records
    assert heart.lag < 0.05


async def test_a_beat_that_is_wanted_before_its_thread_is_up_is_not_forgotten() -> None:
    storage = await a_storage()
    heard = Heard()
    heart = a_heart(storage, heard)
    heart.beat_soon()  # an order, a cancel: it came in the first millisecond
    heart.start("pod-1", time.monotonic())
    async with asyncio.timeout(5):
        while not heard.answers:
            await asyncio.sleep(0.005)
    heart.stop()
    await heart.ended()
