"""The seam: between the pods and a storage lies a network, and it is not kind.

A call travels: latency → [lost on the way] → one transaction in one step → latency → [the answer is lost] → back. A
request that has left its host is carried out even if the host crashes meanwhile, and a pod that hears nothing gives up
at its deadline, not knowing; or it hears at once that its connection broke, and knows as little. Every answer of the
storage is written into the history at the instant it became true.
"""

from __future__ import annotations

import contextvars
import inspect
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...core.errors import StorageTimeout, StorageUnavailable
from ...core.job import Change, Job, State
from ...ports import Applied, Capabilities, Storage, Wake
from ..history import History
from .loop import HOST, WORLD, Host, SimLoop

_UNCHARGED = frozenset({"released", "snoozed", "throttled"})
BROKEN = 0.5  # of the answers that are lost, with their connection: the caller hears of it


class Weather:
    """How bad the network is just now. All zero: healed."""

    def __init__(self) -> None:
        self.lost_request = 0.0
        self.lost_answer = 0.0
        self.refused = 0.0  # the storage answers at once that it cannot
        self.slow = 0.0
        self.lost_wake = 0.0
        self.outage = False

    def heal(self) -> None:
        self.__init__()  # type: ignore[misc]


class Seam:
    """A Storage for simulated hosts. Verbs of the port go over the network; the rest is passed on."""

    def __init__(
        self, storage: Storage, loop: SimLoop, history: History, now: Callable[[], float], seed: str, deadline: float
    ) -> None:
        self.weather = Weather()
        self.counts: Counter[str] = Counter()
        self.caller: Host = WORLD  # whose call is being carried out
        self._storage = storage
        self._loop = loop
        self._history = history
        self._now = now
        self._net = random.Random(f"{seed}/net")  # noqa: S311
        self._deadline = deadline
        self.on_rescue: Callable[[str], None] = lambda pod: None  # told of the pod that lost a job
        self._owners: dict[str, str] = {}
        self._new: set[str] = set()
        self._claims: dict[str, list[float]] = {}

    @property
    def capabilities(self) -> Capabilities:
        # Two turns at once, with the few slots of simulated hosts too. And nobody goes past the network.
        return msgspec.structs.replace(self._storage.capabilities, overlap=2, waits=False)

    @property
    def signals_work(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not inspect.iscoroutinefunction(found) or name in ("open", "close", "detach"):
            return found

        async def verb(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, found, args, kwargs)

        return verb

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        host, context = HOST.get(), contextvars.copy_context()

        def heard(wake: Wake) -> None:
            if host.cut_off or self._net.random() < self.weather.lost_wake:
                self.counts["lost_wake"] += 1
                return
            self._loop.call_later(self._latency() / 2, on_wake, wake, context=context)

        return self._storage.listen(heard)

    def claims_of(self, queue: str) -> list[float]:
        """When jobs of a queue were claimed, in order."""
        return self._claims.get(queue, [])

    # One call --------------------------------------------------------------------------------------------------------

    async def _call(self, name: str, verb: Any, args: Any, kwargs: Any) -> Any:
        host = HOST.get()
        answer = self._loop.create_future()
        travel = contextvars.Context()  # the network's own: no crash of the host reaches it
        travel.run(HOST.set, WORLD)

        def arrive() -> None:
            if self.weather.outage:
                self.counts["outage"] += 1
                self._give(answer, StorageUnavailable("the storage is down"))
                return
            if self._net.random() < self.weather.refused:
                self.counts["refused"] += 1
                self._give(answer, StorageUnavailable("too many connections"))
                return
            self.caller = host
            try:
                found = _at_once(verb(*args, **kwargs))
            except Exception as error:  # the storage's own refusal travels back like any answer
                found = error
            else:
                self._write_down(name, args, kwargs, found)
            if host.cut_off or self._net.random() < self.weather.lost_answer:
                self.counts[f"lost_answer_{name}"] += 1
                if self._net.random() < BROKEN and not host.cut_off:
                    self._loop.call_later(self._latency(), self._give, answer, _broken(name), context=travel)
                return
            self._loop.call_later(self._latency(), self._give, answer, found, context=travel)

        if host.cut_off or self._net.random() < self.weather.lost_request:
            self.counts["lost_request"] += 1
        else:
            self._loop.call_later(self._latency(), arrive, context=travel)
        give_up = StorageTimeout(f"{name}: no answer within {self._deadline:g} s")
        timer = self._loop.call_later(self._deadline, self._give, answer, give_up, context=travel)
        try:
            found = await answer
        finally:
            timer.cancel()
        if name == "beat":
            self._history.add("heard", self._now(), pod=args[0])
        return found

    def _give(self, answer: Any, found: Any) -> None:
        if answer.done():
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def _latency(self) -> float:
        usual = 0.0002 + 0.002 * self._net.random()
        if self.weather.slow and self._net.random() < self.weather.slow:
            self.counts["slow"] += 1
            return usual + 8.0 * self._net.random()
        return usual

    # History ---------------------------------------------------------------------------------------------------------

    def _write_down(self, name: str, args: Any, kwargs: Any, found: Any) -> None:
        self._loop.note(name)
        if name == "beat" and not kwargs.get("renew", True):
            return  # it only asked
        write = getattr(self, f"_note_{name}", None)
        if write is not None:
            write(args, found)

    def known(self, id: str) -> Job | None:
        jobs: Sequence[Job] = _at_once(self._storage.get((id,)))
        return jobs[0] if jobs else None

    def _note_insert(self, args: Any, found: Any) -> None:
        for new, answer in zip(args[0], found, strict=True):
            if answer.outcome == "inserted" and answer.id == new.id:
                self._note_new(new.id)
            elif answer.outcome == "replaced":
                self._history.add("replaced", self._now(), id=answer.id)

    def _note_new(self, id: str) -> None:
        job = self.known(id)
        if job is not None and id not in self._new:
            self._new.add(id)
            self._history.add("inserted", self._now(), id=id, key=job.unique_key, max_attempts=job.max_attempts)

    def _note_claim(self, args: Any, found: Any) -> None:
        pod, token, _ = args
        for job in found.jobs:
            self._history.add("claimed", self._now(), id=job.id, token=token, pod=pod)
            self._owners[job.id] = pod
            self._claims.setdefault(job.queue, []).append(self._now())

    def _note_apply(self, args: Any, found: Sequence[Applied]) -> None:
        for change, answer in zip(args[0], found, strict=True):
            if isinstance(change, Change) and answer.accepted and not answer.repeated:
                is_wait_over = change.answer is not None and change.why != "waits"
                is_answered = change.why == "waits" and answer.state is not State.WAITING  # it was there already
                self._history.add(
                    "applied",
                    self._now(),
                    id=change.id,
                    token="" if is_wait_over else change.token or "",  # its run had ended when it began to wait
                    why=change.why,
                    to=change.to.value if change.to is not None else "",
                    rescue=change.if_lapsed,
                    charged=change.why not in _UNCHARGED and not is_answered,
                )
                self.counts[f"applied_{change.why}"] += 1
                if change.if_lapsed:
                    self.on_rescue(self._owners.get(change.id, ""))
                for new in change.follow_ups:
                    self._note_new(new.id)

    def _note_answer(self, args: Any, found: Any) -> None:
        if found.outcome == "won":
            self.counts["answered"] += 1
        if found.released:
            self._history.add("answered", self._now(), id=found.job)

    def _note_fire(self, args: Any, found: Any) -> None:
        (wish,) = args
        if found.outcome != "fired" or found.repeated:
            return
        for shot, id in zip(wish.shots, found.jobs, strict=False):
            self.counts["fired"] += 1
            self._history.add("fired", self._now(), schedule=wish.name, fire_at=shot.fire_at)
            self._note_new(id)

    def _note_register(self, args: Any, found: Any) -> None:
        self._history.add("registered", self._now(), pod=args[0].id, lease=args[0].lease)

    def _note_beat(self, args: Any, found: Any) -> None:
        if found.lost:
            self.counts["told_lost"] += 1
        else:
            self._history.add("beat", self._now(), pod=args[0], lease=args[1])

    def _note_sign_off(self, args: Any, found: Any) -> None:
        self._history.add("signed_off", self._now(), pod=args[0])


def _broken(name: str) -> StorageUnavailable:
    return StorageUnavailable(f"{name}: the connection broke before an answer came")


def _at_once(verb: Any) -> Any:
    """A verb of the memory storage waits for nothing: it is one step."""
    try:
        verb.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a verb of the simulated storage had to wait")
