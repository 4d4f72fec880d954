"""What pods say of themselves, what operators want of them, and the shares that they are given."""

from __future__ import annotations

from ...core.balance import Share
from ...core.pod import Descriptor, PodStats
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_pod, near, only
from .cluster import pod_of
from .signals import Ear
from .steps import Cases, a_live_pod, edit, put, rescue, start

STATS = PodStats(running={"default": 3, "mail": 1}, cpu_seconds=12.5, rss_bytes=1 << 30, loop_lag=0.25, threads=9)


class Stats(Cases):
    async def test_a_card_says_what_the_pod_may_do(self, storage: Storage) -> None:
        about = {"task work": Descriptor(owner="team ü", tags=("a", "b")), "queue default": Descriptor(docs="http://x")}
        card = a_pod(slots=7, can_lead=False, about=about)
        await storage.register(card)
        assert only(await storage.pods()).card == card

    async def test_a_pod_has_said_nothing_before_its_first_beat(self, storage: Storage) -> None:
        pod = await pod_of(storage, await a_live_pod(storage))
        assert (pod.stats, pod.wish, pod.wish_by, pod.stacks, pod.stacks_at) == (None, "serve", None, None, None)
        assert (pod.stacks_asked, pod.shares) == (None, {})

    async def test_a_beat_tells_how_the_pod_fares(self, storage: Storage) -> None:
        id, other = await a_live_pod(storage), await a_live_pod(storage)
        await storage.beat(id, LEASE, [], stats=STATS)
        assert (await pod_of(storage, id)).stats == STATS
        assert (await pod_of(storage, other)).stats is None

    async def test_a_beat_that_says_nothing_leaves_what_was_said(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await storage.beat(id, LEASE, [], stats=STATS, stacks="one")
        await storage.beat(id, LEASE, [])
        pod = await pod_of(storage, id)
        assert (pod.stats, pod.stacks) == (STATS, "one")

    async def test_a_beat_that_only_asks_tells_nothing(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await storage.beat(id, LEASE, [], renew=False, stats=STATS, stacks="one")
        pod = await pod_of(storage, id)
        assert (pod.stats, pod.stacks) == (None, None)

    async def test_a_lost_pod_tells_nothing(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        assert job.pod is not None
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert (await storage.beat(job.pod, LEASE, [], stats=STATS, stacks="one")).lost
        pod = await pod_of(storage, job.pod)
        assert (pod.stats, pod.stacks) == (None, None)

    async def test_stacks_are_kept_with_the_moment_they_came(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        clock.advance(5)
        await storage.beat(id, LEASE, [], stacks="thread 1 'ü'\n  here\n")
        said = clock.now()
        clock.advance(5)
        await storage.beat(id, LEASE, [])
        pod = await pod_of(storage, id)
        assert pod.stacks == "thread 1 'ü'\n  here\n"
        assert near(pod.stacks_at, said)

    async def test_registering_again_under_the_same_id_begins_anew(self, storage: Storage) -> None:
        card = a_pod()
        await storage.register(card)
        await storage.beat(card.id, LEASE, [], stats=STATS, stacks="one")
        await storage.order_pod(card.id, "quiet", stacks=True, by="ann")
        await storage.save_shares([Share("default", card.id, 3)])
        await storage.register(card)
        pod = only(await storage.pods())
        assert (pod.stats, pod.stacks, pod.wish, pod.stacks_asked, pod.shares) == (None, None, "serve", None, {})


class Serving(Cases):
    async def test_a_beat_tells_how_many_serve_each_queue(self, storage: Storage) -> None:
        id = await a_live_pod(storage, queues={"a": 1, "b": 1})
        await a_live_pod(storage, queues={"b": 1, "c": 1})
        beaten = await storage.beat(id, LEASE, [])
        assert beaten.serving == {"a": 1, "b": 2, "c": 1}
        assert beaten.live_pods == 2

    async def test_those_that_claim_nothing_are_left_out(self, storage: Storage, clock: FakeClock) -> None:
        asked, says, lapsed = [await a_live_pod(storage) for _ in range(3)]
        clock.advance(LEASE + 1)
        id = await a_live_pod(storage)
        for pod in (asked, says):
            await storage.beat(pod, LEASE, [], stats=PodStats(quiet=pod == says))
        await storage.order_pod(asked, "quiet")
        assert (await storage.beat(id, LEASE, [])).serving == {"default": 1}
        await storage.beat(says, LEASE, [], stats=PodStats())
        await storage.beat(lapsed, LEASE, [])
        await storage.order_pod(asked, "serve")
        assert (await storage.beat(id, LEASE, [])).serving == {"default": 4}
        await storage.sign_off(asked)
        assert (await storage.beat(id, LEASE, [])).serving == {"default": 3}

    async def test_a_lost_pod_serves_nothing(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        id = await a_live_pod(storage)
        assert (await storage.beat(id, LEASE, [])).serving == {"default": 1}


class Orders(Cases):
    async def test_a_pod_hears_what_is_wanted_of_it_with_its_beat(self, storage: Storage) -> None:
        id, other = await a_live_pod(storage), await a_live_pod(storage)
        assert (await storage.beat(id, LEASE, [])).wish == "serve"
        assert await storage.order_pod(id, "quiet", by="ann")
        assert (await storage.beat(id, LEASE, [])).wish == "quiet"
        assert (await storage.beat(other, LEASE, [])).wish == "serve"
        pod = await pod_of(storage, id)
        assert (pod.wish, pod.wish_by) == ("quiet", "ann")
        assert await storage.order_pod(id, "stop", by="ben")
        assert (await storage.beat(id, LEASE, [], renew=False)).wish == "stop"
        assert (await pod_of(storage, id)).wish_by == "ben"

    async def test_a_pod_hears_when_its_stacks_were_asked_for(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        assert (await storage.beat(id, LEASE, [])).stacks_asked is None
        await storage.order_pod(id, "quiet", by="ann")
        clock.advance(1)
        assert await storage.order_pod(id, None, stacks=True, by="ben")
        beaten = await storage.beat(id, LEASE, [])
        assert near(beaten.stacks_asked, clock.now())
        assert beaten.wish == "quiet"
        pod = await pod_of(storage, id)
        assert near(pod.stacks_asked, clock.now())
        assert pod.wish_by == "ann"  # who asked for stacks has not asked for quiet

    async def test_who_is_not_there_takes_no_orders(self, storage: Storage, clock: FakeClock) -> None:
        assert not await storage.order_pod(a_pod().id, "stop", stacks=True)
        job = await start(storage)
        assert job.pod is not None
        clock.advance(LEASE + 1)
        assert not await storage.order_pod(job.pod, "stop")  # lapsed
        await rescue(storage, job)
        assert not await storage.order_pod(job.pod, "stop")  # lost
        assert (await pod_of(storage, job.pod)).wish == "serve"

    async def test_who_has_signed_off_takes_no_orders(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await storage.sign_off(id)
        assert not await storage.order_pod(id, "quiet")

    async def test_an_order_wakes(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        ear = Ear(storage)
        await storage.order_pod(id, "quiet")
        assert await ear.hears(lambda wake: wake.settings)
        ear.stop()

    async def test_who_comes_and_who_leaves_wakes_the_others(self, storage: Storage) -> None:
        """They have another part in the queues from then on, and should not learn it a beat later."""
        card, ear = a_pod(), Ear(storage)
        await storage.register(card)
        assert await ear.hears(lambda wake: wake.settings)
        ear.heard.clear()
        await storage.sign_off(card.id)
        assert await ear.hears(lambda wake: wake.settings)
        ear.stop()


class Shares(Cases):
    async def test_a_pod_hears_its_own_shares(self, storage: Storage) -> None:
        id, other = await a_live_pod(storage), await a_live_pod(storage)
        await storage.save_shares([Share("default", id, 4), Share("mail", id, 0), Share("default", other, 3)])
        assert (await storage.beat(id, LEASE, [])).shares == {"default": 4, "mail": 0}
        assert (await storage.beat(other, LEASE, [])).shares == {"default": 3}
        assert (await pod_of(storage, id)).shares == {"default": 4, "mail": 0}

    async def test_a_share_is_changed_and_removed_by_itself(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await storage.save_shares([Share("default", id, 4), Share("mail", id, 2)])
        await storage.save_shares([Share("default", id, 5), Share("mail", id, None), Share("other", id, None)])
        assert (await storage.beat(id, LEASE, [])).shares == {"default": 5}
        await storage.save_shares([Share("default", id, 5)])
        assert (await pod_of(storage, id)).shares == {"default": 5}

    async def test_a_pod_that_is_not_there_gets_none(self, storage: Storage) -> None:
        card = a_pod()
        id = await a_live_pod(storage)
        await storage.save_shares([Share("default", card.id, 4), Share("default", id, 1)])
        await storage.register(card)
        assert (await storage.beat(card.id, LEASE, [])).shares == {}
        assert (await storage.beat(id, LEASE, [])).shares == {"default": 1}

    async def test_who_signs_off_takes_its_shares_along(self, storage: Storage) -> None:
        card = a_pod()
        await storage.register(card)
        await storage.save_shares([Share("default", card.id, 4)])
        await storage.sign_off(card.id)
        await storage.register(card)
        assert (await storage.beat(card.id, LEASE, [])).shares == {}

    async def test_the_share_of_a_lost_pod_is_seen_until_it_is_removed(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job = await start(storage)
        assert job.pod is not None
        await storage.save_shares([Share("default", job.pod, 4)])
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert (await pod_of(storage, job.pod)).shares == {"default": 4}
        await storage.save_shares([Share("default", job.pod, None)])
        assert (await pod_of(storage, job.pod)).shares == {}

    async def test_new_shares_wake(self, storage: Storage) -> None:
        id, ear = a_pod().id, Ear(storage)
        await storage.save_shares([Share("default", id, 4)])
        assert await ear.hears(lambda wake: wake.settings)
        ear.stop()

    async def test_no_shares_wake_nobody(self, storage: Storage) -> None:
        ear = Ear(storage)
        await storage.save_shares([])
        await put(storage, a_job(queue="mail"))
        assert await ear.hears_of("mail")
        assert not any(wake.settings for wake in ear.heard)
        ear.stop()


class DueTasks(Cases):
    async def test_what_could_start_now_is_told_by_queue_and_task(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, a_job(queue="mail", task="send"), a_job(queue="mail", task="send", priority=5))
        clock.advance(10)
        await put(storage, a_job(queue="mail", task="read"), a_job(task="send"), a_job(task="later", delay=60.0))
        found = {(each.queue, each.task): each for each in await storage.due_tasks()}
        assert {pair: each.count for pair, each in found.items()} == {
            ("default", "send"): 1,
            ("mail", "read"): 1,
            ("mail", "send"): 2,
        }
        assert near(found["mail", "send"].seconds, 10)
        assert near(found["mail", "read"].seconds, 0)

    async def test_what_runs_or_has_ended_is_left_out(self, storage: Storage) -> None:
        await start(storage)
        assert list(await storage.due_tasks()) == []

    async def test_what_falls_due_is_told(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, task="later", delay=60.0)
        assert list(await storage.due_tasks()) == []
        clock.advance(61)
        due = only(await storage.due_tasks())
        assert (due.task, due.count) == ("later", 1)
        assert near(due.seconds, 1)

    async def test_a_paused_queue_has_due_tasks_all_the_same(self, storage: Storage) -> None:
        await edit(storage, paused=True)
        await put(storage)
        assert only(await storage.due_tasks()).task == "work"

    async def test_counts_stop_somewhere(self, storage: Storage) -> None:
        await put(storage, *(a_job() for _ in range(1_200)))
        assert 100 <= only(await storage.due_tasks()).count <= 1_000
