"""`app.pods` and `app.warnings()`, on a pod that runs inside the test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import App, JobFailed, PodNotFound, Portion, ResultTimeout, SweepView
from treadle.config import Limits, Timing
from treadle.core.errors import ConfigError
from treadle.core.pod import PodCard
from treadle.core.warnings import PATIENCE
from treadle.ports import Lane, Want
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

QUICK = Timing(lease=3.0, beat=0.2, poll=0.05, grace=1.0, leader_every=0.05, start_jitter=0.0)


def an_app(**more: Any) -> App:
    app = App("memory://", timing=QUICK, **more)

    @app.task(name="hang", queue="mail")
    async def hang() -> None:
        await asyncio.sleep(30)

    @app.task(name="count", queue="mail")
    async def count() -> None: ...

    return app


async def test_orders_reach_an_embedded_pod_and_it_ends_when_asked() -> None:
    app = an_app()
    async with app.worker(["mail"], label="inside") as pod:
        found = await app.pods.get("inside")
        assert found.id == pod.id
        assert (await app.pods.get(pod.id[:6])).label == "inside"
        assert (await app.pods.quiet("inside", by="ann")).state == "quiet"
        async with asyncio.timeout(5):
            while not pod.orders.quiet:
                await asyncio.sleep(0.005)
        await app.enqueue("count")
        await asyncio.sleep(0.1)
        assert (await app.jobs.count("state:ready"))["ready"] == 1
        text = await app.pods.stacks(pod.id)
        assert "test_orders_reach_an_embedded_pod" in text
        await app.pods.serve(pod.id)
        async with asyncio.timeout(5):
            while (await app.jobs.count("state:succeeded"))["succeeded"] != 1:
                await asyncio.sleep(0.005)
        assert (await app.pods.stop("inside", by="ann")).state == "stopping"
        async with asyncio.timeout(5):
            await pod.stopped.wait()
        assert await app.pods.list() == []
        with pytest.raises(PodNotFound, match="there is no pod inside"):
            await app.pods.stop("inside")


async def test_sync_twins_do_the_same() -> None:
    app = an_app()

    def ask() -> list[Any]:
        (pod,) = app.pods.list_sync()
        return [
            app.pods.get_sync(pod.id).state,
            app.pods.quiet_sync(pod.id).wish,
            app.pods.serve_sync(pod.id).wish,
            "(event loop)" in app.pods.stacks_sync(pod.id),
            list(app.warnings_sync()),
            app.pods.stop_sync(pod.id).wish,
        ]

    async with app.worker(["mail"]) as pod:
        assert await asyncio.to_thread(ask) == ["live", "quiet", "serve", True, [], "stop"]
        async with asyncio.timeout(5):
            await pod.stopped.wait()


def a_card(id: str, **more: Any) -> PodCard:
    fields: dict[str, Any] = {"label": "web", "host": "h", "pid": 1, "version": "", "queues": {"mail": 1}, "tasks": ()}
    return PodCard(id=id, lease=30.0, **{**fields, **more})


async def test_a_name_must_mean_one_pod_and_the_living_come_first() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    app = App(storage=storage)
    await storage.register(a_card("aaaa1"))
    clock.advance(31)
    with pytest.raises(PodNotFound, match="pod web is lapsed: nobody is there"):
        await app.pods.quiet("web")
    await storage.register(a_card("aaaa2"))
    assert (await app.pods.quiet("web")).id == "aaaa2"  # the lapsed one of the same label is not meant
    await storage.register(a_card("aaaa3"))
    for name in ("web", "aaaa"):
        with pytest.raises(PodNotFound, match="may be any of"):
            await app.pods.quiet(name)
    with pytest.raises(PodNotFound, match=r"there is no pod aaa$"):
        await app.pods.get("aaa")  # too short to be meant as the beginning of an id
    assert (await app.pods.get("aaaa3")).id == "aaaa3"


async def test_who_does_not_show_its_stacks_is_not_waited_for_for_ever() -> None:
    storage = MemoryStorage()
    await storage.register(a_card("aaaa1"))
    with pytest.raises(ResultTimeout, match="pod web has not shown its stacks within 50ms"):
        await App(storage=storage).pods.stacks("web", timeout="50ms")


async def test_a_pods_total_and_portions_come_from_the_call() -> None:
    app = an_app()
    async with app.worker({"mail": 5, "rest": 5}, pod_slots=3, portions={"rest": Portion(least=1)}) as pod:
        for _ in range(5):
            await app.enqueue("hang")
        async with asyncio.timeout(5):
            while len(pod.roster) < 2:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert pod.roster.counts() == {"mail": 2}  # the third place is kept for rest
        assert (await app.pods.list())[0].slots == 3
        pod.hurry()


@pytest.mark.parametrize(
    ("portions", "word"),
    [
        ({"mail": Portion(least=4)}, "minimum places are 4 together, and pod_slots is 3"),
        ({"mail": Portion(least=-1)}, "queue mail: its least number"),
        ({"mail": Portion(weight=0)}, "queue mail: its least number"),
    ],
)
async def test_portions_that_cannot_be_are_refused(portions: dict[str, Portion], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        async with an_app().worker(["mail"], pod_slots=3, portions=portions):
            pass


@pytest.mark.parametrize(("no_lead", "disable"), [(True, frozenset[str]()), (False, frozenset({"services"}))])
async def test_settings_keep_a_pod_from_leading(no_lead: bool, disable: frozenset[str]) -> None:
    app = an_app()
    app.config = msgspec.structs.replace(app.config, no_lead=no_lead, disable=disable)
    async with app.worker(["mail"]):
        await asyncio.sleep(0.15)
        (pod,) = await app.pods.list()
        assert (pod.leader, pod.can_lead) == (False, False)


async def test_warnings_tell_of_queues_that_nobody_serves_and_tasks_that_nobody_knows() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    app = App(storage=storage, limits=Limits())
    await app.enqueue("send", queue="mail")
    (found,) = await app.warnings()
    assert (found.kind, found.queue, found.code) == ("unserved", "mail", "TREADLE-D013")
    clock.advance(PATIENCE - 1)
    await storage.register(a_card("aaaa1"))
    assert await app.warnings() == ()
    clock.advance(1)
    (found,) = await app.warnings()
    assert (found.kind, found.task) == ("unknown_task", "send")
    await storage.register(a_card("aaaa2", tasks=("send",)))
    assert await app.warnings() == ()


async def test_a_sweep_gives_the_jobs_of_dead_pods_to_the_living_and_counts_them() -> None:
    """Three dead pods: one has signed off and left jobs behind, one's lease is over, and one lives."""
    clock = FakeClock()
    storage = MemoryStorage(clock)
    app = App(storage=storage, timing=QUICK)

    @app.task(name="last", queue="mail", retry=1)
    async def last() -> None: ...

    @app.task(name="hang", queue="bulk")
    async def hang() -> None: ...

    @last.follow_up("failed")
    def tell(job: Any) -> Any:
        return hang.bind()

    async with app:
        assert (await app.pods.sweep()).rescued == 0
        await held(storage, app, "lapsed", "mail", 2)
        await held(storage, app, "gone", "bulk", 3)
        clock.advance(31)
        await held(storage, app, "live", "mail", 1)
        await storage.sign_off("gone")
        found = await app.pods.sweep()
        assert found == SweepView(
            rescued=5,
            waits=0,
            pods={"lapsed-label": 2, "gone": 3},
            queues={"mail": {"failed": 2}, "bulk": {"rescued": 3}},
        )
        assert (await app.jobs.count("queue:bulk"))["ready"] == 5  # the follow-ups of the two that failed among them
        assert (await app.jobs.count("queue:mail"))["running"] == 1
        assert await asyncio.to_thread(app.pods.sweep_sync) == SweepView(rescued=0, waits=0, pods={}, queues={})


async def test_a_sweep_gives_a_slow_pod_one_more_beat() -> None:
    """A lease that is over may be that of a pod which could not speak: the sweep looks twice, a beat apart."""
    clock, looks = FakeClock(), 0

    class Watched(MemoryStorage):
        async def abandoned(self, limit: int, overdue: float) -> Any:
            nonlocal looks
            found = await super().abandoned(limit, overdue)
            looks += 1
            if looks == 1:  # it speaks after the first look
                assert [each.why for each in found] == ["lease"]
                await self.beat("slow", 30.0, ())
            return found

    storage = Watched(clock)
    app = App(storage=storage, timing=QUICK)
    async with app:
        await held(storage, app, "slow", "mail", 1)
        clock.advance(31)
        assert (await app.pods.sweep()).rescued == 0
        assert (await app.jobs.count("queue:mail"))["running"] == 1


async def held(storage: MemoryStorage, app: App, pod: str, queue: str, count: int) -> None:
    """Jobs of a pod that registers, claims them, and does nothing more."""
    card = PodCard(id=pod, label=f"{pod}-label", host="", pid=1, version="0", queues={queue: 9}, tasks=(), lease=30.0)
    await storage.register(card)
    for _ in range(count):
        await app.enqueue("last" if queue == "mail" else "hang", queue=queue)
    taken = await storage.claim(pod, f"{pod}-token", [Want(queue, 9, (Lane(frozenset({"last", "hang"}), 9),))])
    assert len(taken.jobs) == count


async def test_a_pod_of_services_alone_leads_fires_and_rescues_and_claims_nothing(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", timing=QUICK)

    @app.every("1s")
    @app.task(name="tick", queue="mail")
    async def tick() -> None: ...

    with pytest.raises(ConfigError, match="serves no queue"):
        async with app.worker(["mail"], only_services=True):
            pass
    async with app.worker(only_services=True, label="serves") as pod:
        assert "pod serves" in pod.manifest() and "no queues: only services" in pod.manifest()
        left = await app.enqueue("tick", queue="mail")
        card = PodCard(id="dead", label="dead", host="", pid=1, version="0", queues={"mail": 9}, tasks=(), lease=30.0)
        await app.storage.register(card)
        await app.storage.claim("dead", "token", [Want("mail", 1, (Lane(frozenset({"tick"}), 1),))])
        await app.storage.sign_off("dead")
        async with asyncio.timeout(60):
            while (await app.jobs.get(left.id)).state != "ready" or not any(
                each.fired for each in await app.schedules.list()
            ):
                await asyncio.sleep(0.05)
        (seen,) = await app.pods.list()
        assert (seen.leader, seen.queues, seen.state) == (True, {}, "live")
        (mail,) = await app.queues.list()
        assert (mail.pods, mail.slots, mail.running) == (0, 0, 0) and mail.ready >= 2  # fired, rescued, and not claimed
        assert [each.kind for each in await app.warnings()] == ["unserved"]
    assert pod.clean


async def test_a_pod_says_the_version_of_the_code_by_argument_app_or_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    async def said(app: App, **options: Any) -> str:
        async with app.worker("mail", **options) as pod:
            return (await app.pods.get(pod.id)).worker_version

    monkeypatch.setenv("TREADLE_WORKER_VERSION", "of the settings")
    assert await said(App("memory://")) == "of the settings"
    assert await said(App("memory://", worker_version="")) == "of the settings", "an empty one is none"
    app = App("memory://", worker_version="of the app")
    assert await said(app) == "of the app"
    assert await said(app, worker_version="of the worker") == "of the worker"
    assert [each.version for each in await app.pods.deploys()] == ["of the worker", "of the app"]
    for bad in ("two\nlines", " 1", "x" * 65):
        with pytest.raises(ConfigError, match="worker_version must be one line of at most 64 characters"):
            App("memory://", worker_version=bad)
        with pytest.raises(ConfigError, match="worker_version must be one line"):
            await said(app, worker_version=bad)


async def test_failures_count_what_is_new_from_the_last_deploy() -> None:
    app = App("memory://")

    @app.task(name="old", retry=1)
    async def old() -> None:
        raise ValueError("as before")

    @app.task(name="new", retry=1)
    async def new() -> None:
        raise KeyError("since the deploy")

    async def run(task: Any, version: str) -> None:
        async with app.worker(worker_version=version):
            handle = await task.enqueue()
            with pytest.raises(JobFailed):
                await handle.result(timeout=30)

    async with app:
        assert (await app.jobs.failures()).deploy is None
        await run(old, "1")
        await run(new, "2")
        await run(old, "2")  # a restart
        page = await app.jobs.failures()
        assert page.deploy is not None and page.deploy.version == "2"
        assert page.new_since == page.deploy.first_at <= page.deploy.seen_at
        assert {group.task: group.mark for group in page.groups} == {"old": None, "new": "new"}
