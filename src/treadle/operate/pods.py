"""`app.pods`: the workers as operators see them, and what can be asked of them. And `app.warnings()`."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ..client.client import Client
from ..config import Timing
from ..core import warnings
from ..core.duration import Duration, seconds, words
from ..core.errors import PodNotFound, ResultTimeout
from ..core.job import Change, Job
from ..core.pod import Pod, Wish
from ..core.records import DeployView, deploy_view
from ..core.view import PodView, SweepView, pod_view
from ..core.warnings import ClusterWarning
from ..ports import Storage
from ..tasks.task import Task

LOOK_EVERY: Final = 0.1
SHORTEST_PREFIX: Final = 4


class Pods:
    """`app.pods`: the workers, the lapsed and the lost among them until upkeep forgets them.
    A pod is named by its id, by the
    beginning of its id (4 characters or more) or by its label, if that means one pod only.

    What is asked of a pod is heard with its next beat: at once where wake-ups work, else within two seconds.

    >>> for pod in app.pods.list_sync():
    ...     print(pod.label, pod.queues)
    """

    def __init__(self, client: Client, timing: Timing, find: Callable[[str], Task[..., Any] | None]) -> None:
        self._client = client
        self._timing = timing
        self._find = find

    async def list(self) -> Sequence[PodView]:
        """All pods that are known."""
        return [pod_view(pod) for pod in await self._all()]

    async def get(self, pod: str) -> PodView:
        """One pod; PodNotFound."""
        return pod_view(_named(pod, await self._all()))

    async def deploys(self) -> Sequence[DeployView]:
        """The versions of your own code (`worker_version`) that workers have registered with, at most 100: the one that
        was first seen last before the others."""
        return [deploy_view(each) for each in await self._client.ask(lambda storage: storage.deploys())]

    async def quiet(self, pod: str, *, by: str | None = None) -> PodView:
        """Claim nothing more. What runs goes on, and the pod stays until it is asked to serve again, or to stop."""
        return await self._order(pod, "quiet", by)

    async def serve(self, pod: str, *, by: str | None = None) -> PodView:
        """Claim again."""
        return await self._order(pod, "serve", by)

    async def stop(self, pod: str, *, by: str | None = None) -> PodView:
        """End as by SIGTERM: runs have their grace, and a worker process exits with code 0. There is no way back."""
        return await self._order(pod, "stop", by)

    async def stacks(self, pod: str, *, timeout: Duration = 5.0, by: str | None = None) -> str:
        """Where every thread and every asyncio task of the pod stands just now. ResultTimeout if it does not answer in
        time; its answer is kept all the same, and the next call may find a newer one."""
        found = await self._live(pod)
        id, patience = found.card.id, seconds(timeout, "timeout")
        await self._ask(found, None, by, stacks=True)
        await self._client.note("pods.stacks", found.card.label, by, id)
        until = asyncio.get_running_loop().time() + patience
        while True:
            now = _named(id, await self._all())
            if now.stacks is not None and now.stacks_at is not None and now.stacks_at >= (now.stacks_asked or 0.0):
                return now.stacks
            if asyncio.get_running_loop().time() >= until:
                raise ResultTimeout(
                    f"pod {now.card.label} has not shown its stacks within {words(patience)}: see when it last beat"
                )
            await asyncio.sleep(LOOK_EVERY)

    async def sweep(self) -> SweepView:
        """Give the jobs of dead pods to the living now, as the leader's Rescuer does every few seconds: where no pod
        leads, or to see what it would find. A pod whose lease is over may be slow and not dead: it has one more beat
        (10 s) to speak. Follow-ups that a task declares need an app that has the task."""
        swept = _Sweep()
        await self._client.ask(lambda storage: self._sweep(storage, swept))
        return SweepView(
            rescued=sum(swept.pods.values()), waits=swept.waits, pods=dict(swept.pods),
            queues={name: dict(found) for name, found in swept.queues.items()},
        )  # fmt: skip

    async def _sweep(self, storage: Storage, swept: _Sweep) -> None:
        from ..runtime.services.rescuer import Rescuer
        from ..tasks.follow_ups import FollowUps

        overrides = {each.queue.name: each.queue.retry for each in await storage.queues()}
        swept.labels = {each.card.id: each.card.label for each in await storage.pods()}
        rescuer = Rescuer(
            storage,
            self._timing,
            random.Random(),  # noqa: S311
            every=self._timing.beat,
            jitter=0.0,
            rescued=swept.note,
            ended=swept.note_wait,
            beat_age=lambda: 0.0,
            override=overrides.get,
            retry_of=lambda task: None if (known := self._find(task)) is None else known.retry,
            declared=FollowUps(self._find, self._client).added,
        )
        await rescuer.run_once()
        if await storage.abandoned(1, self._timing.overdue):
            await asyncio.sleep(self._timing.beat)
            await rescuer.run_once()

    async def _order(self, pod: str, wish: Wish, by: str | None) -> PodView:
        found = await self._live(pod)
        await self._ask(found, wish, by)
        await self._client.note(f"pods.{wish}", found.card.label, by, found.card.id)
        try:
            return pod_view(_named(found.card.id, await self._all()))
        except PodNotFound:  # it has obeyed already, and signed off
            return pod_view(replace(found, wish=wish, wish_by=by))

    async def _ask(self, pod: Pod, wish: Wish | None, by: str | None, *, stacks: bool = False) -> None:
        if not await self._client.ask(lambda storage: storage.order_pod(pod.card.id, wish, stacks=stacks, by=by)):
            raise PodNotFound(f"pod {pod.card.label} has just gone")

    async def _live(self, name: str) -> Pod:
        pods = await self._all()
        live = [pod for pod in pods if pod.live]
        found = _named(name, pods) if not _matching(name, live) else _named(name, live)
        if not found.live:
            raise PodNotFound(f"pod {found.card.label} is {found.state}: nobody is there to be asked")
        return found

    async def _all(self) -> Sequence[Pod]:
        return await self._client.ask(lambda storage: storage.pods())

    def list_sync(self) -> Sequence[PodView]:
        return self._client.run_sync(self.list())

    def get_sync(self, pod: str) -> PodView:
        return self._client.run_sync(self.get(pod))

    def deploys_sync(self) -> Sequence[DeployView]:
        return self._client.run_sync(self.deploys())

    def quiet_sync(self, pod: str, *, by: str | None = None) -> PodView:
        return self._client.run_sync(self.quiet(pod, by=by))

    def serve_sync(self, pod: str, *, by: str | None = None) -> PodView:
        return self._client.run_sync(self.serve(pod, by=by))

    def stop_sync(self, pod: str, *, by: str | None = None) -> PodView:
        return self._client.run_sync(self.stop(pod, by=by))

    def sweep_sync(self) -> SweepView:
        return self._client.run_sync(self.sweep())

    def stacks_sync(self, pod: str, *, timeout: Duration = 5.0, by: str | None = None) -> str:
        return self._client.run_sync(self.stacks(pod, timeout=timeout, by=by))


class _Sweep:
    """What is counted while a Rescuer works."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.pods: Counter[str] = Counter()
        self.queues: dict[str, Counter[str]] = {}
        self.waits = 0

    def note(self, change: Change, job: Job) -> None:
        id = job.pod or ""
        self.pods[self.labels.get(id, id)] += 1
        self.queues.setdefault(job.queue, Counter())[change.why] += 1

    def note_wait(self, change: Change, job: Job) -> None:
        self.waits += 1
        self.queues.setdefault(job.queue, Counter())[change.why] += 1


async def find_warnings(client: Client) -> Sequence[ClusterWarning]:
    """What is wrong in the cluster and will not mend itself, as far as it shows just now."""
    queues = await client.ask(lambda storage: storage.queues())
    pods = await client.ask(lambda storage: storage.pods())
    due = await client.ask(lambda storage: storage.due_tasks())
    return warnings.ripe(warnings.find(queues, pods, due))


def _named(name: str, pods: Sequence[Pod]) -> Pod:
    found = _matching(name, pods)
    if not found:
        raise PodNotFound(f"there is no pod {name}")
    if len(found) > 1:
        ids = ", ".join(pod.card.id[:8] for pod in found[:5])
        raise PodNotFound(f"{name} may be any of {len(found)} pods: name one by its id ({ids}…)")
    return found[0]


def _matching(name: str, pods: Sequence[Pod]) -> Sequence[Pod]:
    if exact := [pod for pod in pods if pod.card.id == name]:
        return exact
    by_prefix = len(name) >= SHORTEST_PREFIX
    return [pod for pod in pods if pod.card.label == name or (by_prefix and pod.card.id.startswith(name))]
