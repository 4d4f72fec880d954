"""Versions of the user's code: when a pod with each was first seen."""

from __future__ import annotations

import asyncio

from ...core.deploy import KEPT, LONGEST_VERSION
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_pod, near, only
from .concurrency import Sharing
from .steps import Cases, a_live_pod


class Deploys(Cases):
    async def test_a_version_keeps_its_first_sight(self, storage: Storage, clock: FakeClock) -> None:
        """Over restarts, and when the version comes again after another one."""
        began = clock.now()
        pod = a_pod(worker_version="2026.11.2")
        await storage.register(pod)
        clock.advance(60)
        await storage.sign_off(pod.id)
        await storage.register(a_pod(worker_version="2026.11.2"))
        deploy = only(await storage.deploys())
        assert deploy.version == "2026.11.2"
        assert near(deploy.first_at, began)
        assert near(deploy.seen_at, clock.now())
        clock.advance(60)
        await storage.register(a_pod(worker_version="2026.11.3"))
        clock.advance(60)
        await storage.register(a_pod(worker_version="2026.11.2"))
        newest, old = await storage.deploys()
        assert (newest.version, old.version) == ("2026.11.3", "2026.11.2")
        assert near(newest.first_at, began + 120)
        assert near(old.first_at, began)
        assert near(old.seen_at, clock.now())

    async def test_the_version_that_was_first_seen_last_comes_first(self, storage: Storage, clock: FakeClock) -> None:
        for versions in (("3",), ("a", "B", "1"), ("2",)):
            for version in versions:
                await storage.register(a_pod(worker_version=version))
            clock.advance(60)
        assert [each.version for each in await storage.deploys()] == ["2", "1", "B", "a", "3"]

    async def test_a_pod_without_a_version_is_no_deploy(self, storage: Storage) -> None:
        await a_live_pod(storage)
        assert list(await storage.deploys()) == []
        assert await _rows(storage) in (None, 0)

    async def test_a_version_outlives_its_pods(self, storage: Storage, clock: FakeClock) -> None:
        pod = a_pod(worker_version="v1")
        await storage.register(pod)
        await storage.sign_off(pod.id)
        clock.advance(7 * 86_400)
        await storage.abandoned(10, 30.0)
        assert only(await storage.deploys()).version == "v1"

    async def test_the_card_tells_the_version(self, storage: Storage) -> None:
        version = "ü" * LONGEST_VERSION  # as long as one can be
        await storage.register(a_pod(worker_version=version))
        assert only(await storage.pods()).card.worker_version == version
        assert only(await storage.deploys()).version == version

    async def test_of_many_versions_those_that_registered_last_are_kept(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        began = clock.now()
        for number in range(KEPT):
            await storage.register(a_pod(worker_version=f"v{number:03}"))
            clock.advance(1)
        await storage.register(a_pod(worker_version="v000"))  # the oldest one runs still
        clock.advance(1)
        for number in (KEPT, KEPT + 1):
            await storage.register(a_pod(worker_version=f"v{number:03}"))
            clock.advance(1)
        found = {each.version: each for each in await storage.deploys()}
        assert len(found) == KEPT
        assert {"v000", "v003", f"v{KEPT:03}", f"v{KEPT + 1:03}"} <= found.keys()
        assert not {"v001", "v002"} & found.keys()
        assert near(found["v000"].first_at, began)
        assert await _rows(storage) in (None, KEPT)


class DeploysElsewhere(Sharing):
    async def test_pods_that_register_at_once_are_one_deploy(self, storage: Storage, clock: FakeClock) -> None:
        async def use(other: Storage) -> None:
            cards = [a_pod(worker_version="v1") for _ in range(8)]
            await asyncio.gather(*((storage, other)[n % 2].register(card) for n, card in enumerate(cards)))
            assert [each.version for each in await storage.deploys()] == ["v1"]
            assert [each.version for each in await other.deploys()] == ["v1"]

        await self.both(storage, clock, use)


async def _rows(storage: Storage) -> int | None:
    """How many rows there are, told or not; None of a storage that does not say."""
    if "deploy" not in storage.kinds():
        return None
    return len((await storage.dump("deploy", limit=2 * KEPT)).records)
