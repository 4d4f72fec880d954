"""Causes of failures that people know of, and need not see first."""

from __future__ import annotations

from ...core.audit import AuditLine
from ...core.mute import Mute
from ...ports import Storage
from ..clock import FakeClock
from .builders import an_id, near, only
from .steps import Cases

CAUSE = "shop.charge:TimeoutError:shop.bank:connect"


class Mutes(Cases):
    async def test_a_mute_is_kept_until_it_is_ended(self, storage: Storage, clock: FakeClock) -> None:
        assert [*await storage.mutes()] == []
        await storage.mute(Mute(cause=CAUSE, who="ann"))
        clock.advance(86_400)
        kept = only(await storage.mutes())
        assert (kept.cause, kept.until, kept.who) == (CAUSE, None, "ann")
        assert near(kept.at, clock.now() - 86_400)
        assert await storage.unmute(CAUSE)
        assert not await storage.unmute(CAUSE)
        assert [*await storage.mutes()] == []

    async def test_a_mute_ends_by_the_storages_clock(self, storage: Storage, clock: FakeClock) -> None:
        await storage.mute(Mute(cause=CAUSE, until=clock.now() + 60))
        clock.advance(59)
        assert only(await storage.mutes()).cause == CAUSE
        clock.advance(2)
        assert [*await storage.mutes()] == []
        assert not await storage.unmute(CAUSE)

    async def test_a_later_mute_takes_the_place_of_an_earlier_one(self, storage: Storage, clock: FakeClock) -> None:
        await storage.mute(Mute(cause=CAUSE, until=clock.now() + 60, who="ann"))
        await storage.mute(Mute(cause=CAUSE, who="ben"))
        kept = only(await storage.mutes())
        assert (kept.until, kept.who) == (None, "ben")

    async def test_mutes_are_told_in_the_order_of_their_causes(self, storage: Storage) -> None:
        for cause in ("b:X:", "a:X:", "B:X:"):
            await storage.mute(Mute(cause=cause))
        assert [each.cause for each in await storage.mutes()] == ["B:X:", "a:X:", "b:X:"]

    async def test_a_mute_and_its_end_bring_their_lines_once(self, storage: Storage) -> None:
        lines = [AuditLine(id=an_id(), act=f"jobs.act{n}", subject=CAUSE, by="ann") for n in range(3)]
        for _ in range(2):  # the second time, the first answer was lost
            await storage.mute(Mute(cause=CAUSE), line=lines[0])
        for _ in range(2):
            assert await storage.unmute(CAUSE, line=lines[1])
        await storage.mute(Mute(cause=CAUSE), line=lines[0])
        assert [*await storage.mutes()] == [], "a word that came late has muted it again"
        assert not await storage.unmute(CAUSE, line=lines[2])
        assert {line.id for line in await storage.audit()} == {lines[0].id, lines[1].id}
