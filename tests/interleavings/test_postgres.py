"""Every pair of verbs, in every order of their statements, on two connections: rows and answers must be those of one
verb after the other.

    INTERLEAVINGS=all   every order; and where the two have nothing to do with each other, up to two switches
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.storages.test_postgres_agrees import rounded
from treadle.ports import Storage
from treadle.storages.postgres import claim
from treadle.storages.postgres.talk import BEGIN, COMMIT, Talk

from .gate import Deadlock, Ran, following
from .stage import Result, Staged, meet, on_memory
from .verbs import JOB, LEFT, PAIRS, RIGHT, SITUATIONS, VERBS, has_won, must_have_one_winner

ALL = os.environ.get("INTERLEAVINGS") == "all"
# The verbs of a pod and of an operator that meet all day. Their races are searched deeper: a side that could go on is
# made to wait twice, not once. Nearly all races need one such switch, or two; `make interleavings` tries them all.
DEEP = frozenset({"claim", "finish", "rescue", "cancel", "release", "insert_unique"})

# Who passes over what another has locked, and what it then answers: as if there had been nothing to do.
PASSING: dict[str, Any] = {"claim": [], "prune": 0, "lead": None}


@pytest.fixture(scope="module")
def staged() -> Iterator[Staged]:
    # A slow machine must not look like a table full of dead rows: claims would keep a mark, and rows are put back here.
    before, claim.SLOW_SCAN = claim.SLOW_SCAN, 1e9  # type: ignore[misc]
    staged = Staged()
    yield staged
    staged.close()
    claim.SLOW_SCAN = before  # type: ignore[misc]


def comparable(result: Result, pair: tuple[str, str]) -> Any:
    """A beat passes over a locked row, and its slot is told by the next one."""
    rows = [(table, {**row, "slot": None} if "beat" in pair and "slot" in row else row) for table, row in result.rows]
    return result.answers, rows


class Search:
    """All orders of two verbs in one situation."""

    def __init__(self, staged: Staged, pair: tuple[str, str], situation: str) -> None:
        self.stage = staged.stage
        self.pair = pair
        self.situation = situation
        self.answers: list[list[Any]] = []  # of each order that was tried
        self.waits = 0

    @property
    def tried(self) -> int:
        return len(self.answers)

    def answers_of(self, side: int) -> list[Any]:
        return [both[side] for both in self.answers]

    async def run(self, most_switches: int | None) -> None:
        allowed = await self._allowed()
        left: list[list[int]] = [[]]
        while left:
            order = left.pop()
            ran, result = await self.stage.interleaved(self.pair, self.situation, order)
            self.answers.append(result.answers)
            self.waits += ran.waits
            if comparable(result, self.pair) not in allowed:
                raise AssertionError(self._told(ran, result, "is what neither order of the two would have given"))
            if must_have_one_winner(self.pair, self.situation):
                won = sum(map(has_won, self.pair, result.answers))
                if won != 1:
                    raise AssertionError(self._told(ran, result, f"has {won} winners"))
            left += following(ran, len(order), most_switches)

    async def _allowed(self) -> list[Any]:
        found: list[Result] = []
        for order in ((LEFT, RIGHT), (RIGHT, LEFT)):
            found.append(await self.stage.in_turn(self.pair, self.situation, order))
            if "bad" not in self.pair:
                expected = (await on_memory(self.pair, self.situation, order)).answers
                assert rounded(found[-1].answers) == rounded(expected), (self.pair, self.situation, order)
        for side, verb in enumerate(self.pair):
            if verb in PASSING:
                alone = await self.stage.in_turn(self.pair, self.situation, (1 - side,))
                alone.answers[side] = PASSING[verb]
                found.append(alone)
        return [comparable(each, self.pair) for each in found]

    def _told(self, ran: Ran, result: Result, what: str) -> str:
        steps = "\n".join(f"  {step}" for step in ran.told)
        return f"{self.pair} in {self.situation!r} {what}:\n{steps}\n  answers: {result.answers}\n  rows: {result.rows}"


def switches(pair: tuple[str, str], matters: bool) -> int | None:
    """How often a side that could go on is made to wait, at most; None: as often as you like."""
    if ALL:
        return None if matters else 2
    return 2 if {*pair} <= DEEP else 1


@pytest.mark.parametrize("first", VERBS)
def test_every_order_of_statements_is_as_one_verb_after_the_other(
    first: str, staged: Staged, record_property: Any
) -> None:
    tried = waits = 0
    for pair in [pair for pair in PAIRS if pair[0] == first]:
        for situation in SITUATIONS:
            matters = staged.runner.run(meet(pair, situation))
            if matters or ALL:
                search = Search(staged, pair, situation)
                staged.runner.run(search.run(switches(pair, matters)))
                tried += search.tried
                waits += search.waits
    record_property("interleavings", tried)
    record_property("waits for locks", waits)


def test_a_revival_that_loses_its_key_while_it_is_written_is_told_who_has_it(staged: Staged) -> None:
    """The key is free when it looks and taken when it writes: PostgreSQL's own words, and a state as if there were no
    such job, were what it was told."""
    search = Search(staged, ("insert_unique", "revive"), "ended")
    staged.runner.run(search.run(None))
    refused = [told for told in search.answers_of(RIGHT) if not told["accepted"]]
    assert {(told["state"], told["error"]) for told in refused} == {("failed", "a live job holds its unique key")}
    assert search.waits  # in some of them it waited for the other's commit


# The tester is tested ------------------------------------------------------------------------------------------------


async def hasty(storage: Any, side: int) -> Any:
    """A claim that looks, and writes what it has seen without looking again."""

    def talk() -> Talk[bool]:
        found = yield "select 1 from treadle.job where id = $1::uuid and state = 'ready'", (JOB,)
        if found:
            yield "update treadle.job set state = 'running', token = $2 where id = $1::uuid", (JOB, f"claim-{side}")
        return bool(found)

    return await storage._slowly(talk)


async def crossing(storage: Any, side: int) -> Any:
    """Locks two rows, in an order that differs by the side."""

    def talk() -> Talk[None]:
        yield BEGIN
        for queue in ("mail", "media") if side == LEFT else ("media", "mail"):
            yield "select 1 from treadle.queue where name = $1 for update", (queue,)
        yield COMMIT

    return await storage._slowly(talk)


@pytest.mark.parametrize(
    ("verb", "found"), [(hasty, "neither order"), (crossing, "both sides wait")], ids=["hasty", "crossing"]
)
def test_a_bad_verb_is_found(verb: Any, found: str, staged: Staged, monkeypatch: pytest.MonkeyPatch) -> None:
    async def bad(storage: Storage, side: int) -> Any:
        return await verb(storage, side)

    monkeypatch.setitem(VERBS, "bad", bad)
    search = Search(staged, ("bad", "bad"), "ready")
    with pytest.raises(AssertionError, match=found) as caught:
        staged.runner.run(search.run(None))
    assert isinstance(caught.value, Deadlock) == (verb is crossing)


def test_a_lock_that_neither_side_holds_is_waited_for(staged: Staged) -> None:
    """A session beside the two, such as a vacuum, held up the only side that was left: that was told as a deadlock."""
    stage, gate = staged.stage, staged.stage.gates[LEFT]

    def talk() -> Talk[None]:
        yield "select 1 from treadle.queue where name = $1 for update", ("mail",)

    async def run() -> None:
        vacuum = await asyncpg.connect(stage.url)
        storage: Any = stage.storages[LEFT]
        gate.start(storage._slowly(talk))
        try:
            await vacuum.execute(f'begin; lock table "{stage.schema}".queue in access exclusive mode')
            assert not await gate.settle(stage._is_blocked)
            gate.let_through()
            while vacuum.get_server_pid() not in await stage._watch.fetchval("select pg_blocking_pids($1)", gate.pid):
                await asyncio.sleep(0.001)
            assert not await stage._is_blocked(gate.pid)
        finally:
            await vacuum.close()
            gate.closed = False
            gate.let_through()
            await asyncio.gather(*filter(None, [gate.task]))

    staged.runner.run(run())
