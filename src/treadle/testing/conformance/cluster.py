"""Pods: registering, beating, signing off, leading."""

from __future__ import annotations

from ...core import lifecycle
from ...core.outcome import Interrupted, Succeeded
from ...core.pod import Pod
from ...ports import RunReport, Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_pod, a_token, near, only
from .steps import Cases, a_live_pod, edit, end, look, put, queue, rescue, start, take, write


async def pod_of(storage: Storage, id: str) -> Pod:
    return only([pod for pod in await storage.pods() if pod.card.id == id])


class Pods(Cases):
    async def test_a_registered_pod_is_known_as_it_described_itself(self, storage: Storage, clock: FakeClock) -> None:
        card = a_pod(label="web-1 'ü'", host="box", pid=77, version="1.2", queues={"a": 1, "b": 2}, tasks=("x", "y"))
        await storage.register(card)
        pod = only(await storage.pods())
        assert pod.card == card
        assert pod.live
        assert near(pod.started_at, clock.now())
        assert near(pod.beat_at, clock.now())
        assert near(pod.lease_left, LEASE)
        assert (pod.running, pod.leader, pod.lost) == (0, False, False)

    async def test_registering_makes_the_served_queues_known(self, storage: Storage) -> None:
        await a_live_pod(storage, queues={"mail": 3, "bills": 1})
        assert sorted(each.queue.name for each in await storage.queues()) == ["bills", "mail"]

    async def test_registering_does_not_overwrite_a_queues_settings(self, storage: Storage) -> None:
        await edit(storage, "mail", paused=True, max_workers=3)
        await a_live_pod(storage, queues={"mail": 9})
        row = await queue(storage, "mail")
        assert (row.paused, row.max_workers) == (True, 3)

    async def test_a_pods_lease_runs_down(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        clock.advance(10)
        assert near((await pod_of(storage, id)).lease_left, LEASE - 10)
        clock.advance(LEASE)
        pod = await pod_of(storage, id)
        assert (pod.live, pod.lost) == (False, False)

    async def test_each_pod_has_a_lease_of_its_own_length(self, storage: Storage, clock: FakeClock) -> None:
        short = await a_live_pod(storage, lease=5.0)
        long = await a_live_pod(storage, lease=50.0)
        clock.advance(6)
        assert not (await pod_of(storage, short)).live
        assert (await pod_of(storage, long)).live

    async def test_a_pod_shows_how_many_jobs_it_runs(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        first, _ = await take(storage, id)
        assert (await pod_of(storage, id)).running == 2
        await end(storage, first, Succeeded())
        assert (await pod_of(storage, id)).running == 1

    async def test_a_pod_that_signed_off_is_gone(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        other = await a_live_pod(storage)
        await storage.sign_off(id)
        assert [pod.card.id for pod in await storage.pods()] == [other]

    async def test_signing_off_leaves_released_jobs_to_others(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        await end(storage, job, Interrupted())
        await storage.sign_off(job.pod)
        other = await a_live_pod(storage)
        assert [each.id for each in await take(storage, other)] == [job.id]


class Beat(Cases):
    async def test_a_beat_renews_the_lease_from_now(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        clock.advance(20)
        beaten = await storage.beat(id, LEASE, [])
        assert not beaten.lost
        assert near(beaten.now, clock.now())
        pod = await pod_of(storage, id)
        assert near(pod.lease_left, LEASE)
        assert near(pod.beat_at, clock.now())

    async def test_a_beat_chooses_the_length_of_the_next_lease(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await storage.beat(id, 77.0, [])
        assert near((await pod_of(storage, id)).lease_left, 77)

    async def test_a_beat_that_only_asks_renews_nothing(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        clock.advance(20)
        beaten = await storage.beat(id, LEASE, [], renew=False)
        assert not beaten.lost
        assert near((await pod_of(storage, id)).lease_left, LEASE - 20)

    async def test_a_lapsed_pod_that_only_asks_stays_lapsed(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        await put(storage)
        clock.advance(LEASE + 1)
        assert not (await storage.beat(id, LEASE, [], renew=False)).lost
        assert list(await take(storage, id)) == []

    async def test_expiry_alone_takes_nothing_away(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        assert job.pod is not None
        clock.advance(LEASE * 100)
        beaten = await storage.beat(job.pod, LEASE, [])
        assert not beaten.lost
        assert [held.id for held in beaten.held] == [job.id]
        assert (await end(storage, job, Succeeded())).result is None

    async def test_an_unknown_pod_is_told_that_it_is_lost(self, storage: Storage) -> None:
        assert (await storage.beat(a_pod().id, LEASE, [])).lost
        assert list(await storage.pods()) == []

    async def test_a_pod_that_signed_off_is_told_that_it_is_lost(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        await storage.sign_off(id)
        assert (await storage.beat(id, LEASE, [])).lost

    async def test_a_beat_answers_with_the_claims_of_this_pod_only(self, storage: Storage) -> None:
        mine = await start(storage)
        other = await start(storage)
        assert mine.pod is not None
        assert other.pod is not None
        held = only((await storage.beat(mine.pod, LEASE, [])).held)
        assert (held.id, held.token, held.cancel_wanted) == (mine.id, mine.token, False)

    async def test_a_finished_run_is_no_longer_held(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        await end(storage, job, Succeeded())
        assert (await storage.beat(job.pod, LEASE, [])).held == ()

    async def test_a_claim_that_its_pod_does_not_know_of_is_held_all_the_same(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        assert job.token is not None
        held = (await storage.beat(job.pod, LEASE, [RunReport(a_pod().id, a_token(), "slot")])).held
        assert [each.id for each in held] == [job.id]

    async def test_a_beat_names_the_slots_of_its_runs(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        assert job.token is not None
        await storage.beat(job.pod, LEASE, [RunReport(job.id, job.token, "default-3-pod")])
        assert (await look(storage, job.id)).slot == "default-3-pod"

    async def test_a_run_reported_under_an_old_token_names_no_slot(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        await storage.beat(job.pod, LEASE, [RunReport(job.id, a_token(), "wrong")])
        assert (await look(storage, job.id)).slot is None

    async def test_a_run_reported_twice_in_a_beat_is_one_run(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        assert job.token is not None
        report = RunReport(job.id, job.token, "default-3-pod")
        stale = RunReport(job.id, a_token(), "wrong")
        for runs in ([report, report], [report, stale], [stale, report, stale, report]):
            held = (await storage.beat(job.pod, LEASE, runs)).held
            assert [each.id for each in held] == [job.id]
            assert (await look(storage, job.id)).slot == "default-3-pod"
        assert (await pod_of(storage, job.pod)).running == 1

    async def test_a_slot_does_not_outlive_its_run(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        assert job.token is not None
        await storage.beat(job.pod, LEASE, [RunReport(job.id, job.token, "default-3-pod")])
        assert (await end(storage, job, Interrupted())).slot is None
        again = only(await take(storage, job.pod))
        assert again.slot is None

    async def test_a_beat_carries_the_queues_settings(self, storage: Storage) -> None:
        id = await a_live_pod(storage, queues={"mail": 1})
        await edit(storage, "mail", paused=True, max_workers=4)
        queues = {each.name: each for each in (await storage.beat(id, LEASE, [])).queues}
        assert queues["mail"] == await queue(storage, "mail")
        assert (queues["mail"].paused, queues["mail"].max_workers) == (True, 4)

    async def test_a_beat_counts_the_live_pods(self, storage: Storage, clock: FakeClock) -> None:
        await a_live_pod(storage)
        clock.advance(LEASE + 1)
        id = await a_live_pod(storage)
        await a_live_pod(storage)
        assert (await storage.beat(id, LEASE, [])).live_pods == 2

    async def test_a_lost_pod_hears_it_for_ever(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        assert job.pod is not None
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        for _ in range(2):
            assert (await storage.beat(job.pod, LEASE, [])).lost
        await put(storage)
        assert list(await take(storage, job.pod)) == []
        assert (await pod_of(storage, job.pod)).lost

    async def test_a_lost_pod_may_register_anew_under_another_id(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        again = await a_live_pod(storage)
        assert [each.id for each in await take(storage, again)] == [job.id]


class Leadership(Cases):
    async def test_the_first_pod_that_asks_leads(self, storage: Storage) -> None:
        id = await a_live_pod(storage)
        term = await storage.lead(id, 15.0)
        assert term is not None
        assert term > 0
        assert (await pod_of(storage, id)).leader

    async def test_two_do_not_lead_at_once(self, storage: Storage) -> None:
        one, other = await a_live_pod(storage), await a_live_pod(storage)
        assert await storage.lead(one, 15.0) is not None
        assert await storage.lead(other, 15.0) is None
        assert [pod.card.id for pod in await storage.pods() if pod.leader] == [one]

    async def test_renewing_keeps_the_term(self, storage: Storage, clock: FakeClock) -> None:
        one, other = await a_live_pod(storage), await a_live_pod(storage)
        term = await storage.lead(one, 15.0)
        for _ in range(2):
            clock.advance(10)
            assert await storage.lead(one, 15.0) == term
        assert await storage.lead(other, 15.0) is None

    async def test_an_expired_leader_is_followed_under_a_higher_term(self, storage: Storage, clock: FakeClock) -> None:
        one, other = await a_live_pod(storage, lease=100.0), await a_live_pod(storage, lease=100.0)
        first = await storage.lead(one, 15.0)
        clock.advance(15)
        second = await storage.lead(other, 15.0)
        assert first is not None
        assert second is not None
        assert second > first
        assert await storage.lead(one, 15.0) is None

    async def test_the_term_rises_at_every_change_of_holder(self, storage: Storage) -> None:
        pods = [await a_live_pod(storage) for _ in range(2)]
        terms: list[int] = []
        for n in range(4):
            term = await storage.lead(pods[n % 2], 15.0)
            assert term is not None
            terms.append(term)
            await storage.step_down(pods[n % 2])
        assert terms == sorted(set(terms))

    async def test_a_leader_that_steps_down_makes_room_at_once(self, storage: Storage) -> None:
        one, other = await a_live_pod(storage), await a_live_pod(storage)
        await storage.lead(one, 15.0)
        await storage.step_down(one)
        assert not (await pod_of(storage, one)).leader
        assert await storage.lead(other, 15.0) is not None

    async def test_only_the_leader_can_step_down(self, storage: Storage) -> None:
        one, other = await a_live_pod(storage), await a_live_pod(storage)
        await storage.lead(one, 15.0)
        await storage.step_down(other)
        assert await storage.lead(other, 15.0) is None

    async def test_signing_off_steps_down(self, storage: Storage) -> None:
        one, other = await a_live_pod(storage), await a_live_pod(storage)
        await storage.lead(one, 15.0)
        await storage.sign_off(one)
        assert await storage.lead(other, 15.0) is not None

    async def test_a_pod_without_a_live_lease_does_not_lead(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        clock.advance(LEASE + 1)
        assert await storage.lead(id, 15.0) is None
        assert await storage.lead(a_pod().id, 15.0) is None

    async def test_a_lost_pod_does_not_lead(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await write(storage, lifecycle.rescue(job, "pod"))
        assert await storage.lead(job.pod or "", 15.0) is None

    async def test_a_leader_of_before_the_reboot_is_in_nobodys_way(self, storage: Storage, clock: FakeClock) -> None:
        old = await a_live_pod(storage)
        first = await storage.lead(old, 15.0)
        clock.reboot()
        new = await a_live_pod(storage)
        second = await storage.lead(new, 15.0)
        assert first is not None
        assert second is not None
        assert second > first
