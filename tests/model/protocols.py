"""The protocols of Treadle, small enough to be searched to their end. Each is written with its safeguards as
parameters: with one of them off it is the broken twin, which must be found.

They are about the protocol, not the code: what a storage does in one transaction is one step here, and everything
between two steps may be arbitrarily slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .explorer import Model, Step

MOST_CLAIMS = 3


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


# Lease, beat, rescue and fence ---------------------------------------------------------------------------------------


class LeaseState(NamedTuple):
    job: str = "ready"
    owner: int | None = None
    token: int = 0  # of the current claim; the last that was given
    leased: tuple[bool, ...] = (True, True)
    lost: tuple[bool, ...] = (False, False)
    runs: tuple[int | None, ...] = (None, None)  # the token of what each pod runs
    suspects: tuple[bool, ...] = (False, False)  # what each has found lapsed, as a rescuer
    fault: str | None = None


@dataclass
class Lease(Model):
    """Two pods and one job. A lease may lapse at any time, a pod may die and start again under a new id."""

    fence: bool = True  # a finish is compared with the current token
    looks_again: bool = True  # a rescue is compared with the lease when it is written
    start = LeaseState()

    def steps(self, state: LeaseState) -> Iterator[Step]:
        for pod in (0, 1):
            other = 1 - pod
            token = state.runs[pod]
            if state.job == "ready" and state.leased[pod] and not state.lost[pod] and state.token < MOST_CLAIMS:
                new = state.token + 1
                yield (
                    f"claim {pod}",
                    state._replace(job="running", owner=pod, token=new, runs=put(state.runs, pod, new)),
                )
            if state.leased[pod]:
                yield f"fault: lapse {pod}", state._replace(leased=put(state.leased, pod, False))
            if state.lost[pod]:
                yield f"beat {pod}, lost", self._anew(state, pod)
            else:
                yield f"beat {pod}", state._replace(leased=put(state.leased, pod, True))
            if state.job == "running" and state.owner == other and not state.leased[other]:
                yield f"look {pod}", state._replace(suspects=put(state.suspects, pod, True))
            if state.suspects[pod]:
                yield f"rescue {pod}", self._rescue(state, pod, other)
            if token is not None:
                yield f"finish {pod}", self._finish(state, pod, token)
                yield (
                    f"fault: crash {pod}",
                    state._replace(
                        runs=put(state.runs, pod, None),
                        leased=put(state.leased, pod, False),
                        lost=put(state.lost, pod, True),
                    ),
                )

    def _anew(self, state: LeaseState, pod: int) -> LeaseState:
        return state._replace(
            lost=put(state.lost, pod, False), leased=put(state.leased, pod, True), runs=put(state.runs, pod, None)
        )

    def _rescue(self, state: LeaseState, pod: int, of: int) -> LeaseState:
        state = state._replace(suspects=put(state.suspects, pod, False))
        if state.job != "running" or state.owner != of:
            return state
        if state.leased[of]:
            if self.looks_again:
                return state
            state = state._replace(fault="a pod with a live lease was robbed")
        return state._replace(job="ready", owner=None, lost=put(state.lost, of, True))

    def _finish(self, state: LeaseState, pod: int, token: int) -> LeaseState:
        state = state._replace(runs=put(state.runs, pod, None))
        if state.job != "running" or (self.fence and state.token != token):
            return state
        fault = None if state.token == token else "a zombie has ended another's run"
        return state._replace(job="done", owner=None, fault=fault)

    def wrong(self, state: LeaseState) -> str | None:
        return state.fault


# Cancel, finish, rescue ----------------------------------------------------------------------------------------------


class CancelState(NamedTuple):
    job: str = "ready"
    flag: bool = False
    told: bool = False  # a caller's cancel was accepted
    wish: str | None = None  # what the pod or a rescuer has decided and not yet written
    claims: int = 0


@dataclass
class Cancel(Model):
    """A cancel of a running job is a flag; whoever ends or returns the run may not have seen it."""

    guarded: bool = True  # `unless_cancel_wanted`: a run does not go back while the flag is up
    start = CancelState()

    def steps(self, state: CancelState) -> Iterator[Step]:
        if state.job == "ready" and state.claims < MOST_CLAIMS:
            yield "claim", state._replace(job="running", flag=False, claims=state.claims + 1)
        if state.job == "ready":
            yield "cancel", state._replace(job="cancelled", told=True)
        if state.job == "running":
            yield "ask to cancel", state._replace(flag=True, told=True)
            if state.wish is None:
                for wish in ("succeed", "retry", "rescue"):
                    seen = "cancel" if state.flag and wish != "succeed" else wish
                    yield f"decide to {seen}", state._replace(wish=seen)
        if state.wish is not None:
            yield f"write {state.wish}", self._write(state, state.wish)

    def _write(self, state: CancelState, wish: str) -> CancelState:
        state = state._replace(wish=None)
        if state.job != "running":
            return state
        if wish == "succeed":
            return state._replace(job="succeeded", flag=False)
        if wish == "cancel":
            return state._replace(job="cancelled", flag=False)
        if state.flag and self.guarded:
            return state._replace(wish="cancel")  # refused and told why: `obey_cancel`
        return state._replace(job="ready", flag=False)

    def wrong(self, state: CancelState) -> str | None:
        return "a job that was cancelled is to run again" if state.told and state.job == "ready" else None


# Unique key and rescue -----------------------------------------------------------------------------------------------


class UniqueState(NamedTuple):
    jobs: tuple[str, ...] = ("none", "none")
    key: int | None = None  # which job holds it
    looked: tuple[bool, ...] = (False, False)  # an inserter that has seen the key free


@dataclass
class Unique(Model):
    """Two requests with one key. A holder runs, loses its pod, comes back, ends and is revived."""

    index: bool = True  # the key is taken in the write, not looked up before it
    held_while_running: bool = True
    start = UniqueState()

    def steps(self, state: UniqueState) -> Iterator[Step]:
        for which, job in enumerate(state.jobs):
            if job == "none":
                if state.key is None and not state.looked[which]:
                    yield f"look {which}", state._replace(looked=put(state.looked, which, True))
                if state.looked[which] and (state.key is None or not self.index):
                    yield f"insert {which}", self._to(state, which, "ready", key=which)
            if job == "ready":
                key = state.key if self.held_while_running else None
                yield f"claim {which}", self._to(state, which, "running", key=key)
                yield f"cancel {which}", self._to(state, which, "ended", key=None)
            if job == "running":
                yield f"finish {which}", self._to(state, which, "ended", key=None if state.key == which else state.key)
                yield f"rescue {which}", self._to(state, which, "ready", key=which)
            if job == "ended" and state.key is None:
                yield f"revive {which}", self._to(state, which, "ready", key=which)

    def _to(self, state: UniqueState, which: int, job: str, key: int | None) -> UniqueState:
        return state._replace(jobs=put(state.jobs, which, job), key=key)

    def wrong(self, state: UniqueState) -> str | None:
        live = [job for job in state.jobs if job in ("ready", "running")]
        return "two live jobs have one key" if len(live) > 1 else None


# A schedule, two leaders, and a pause --------------------------------------------------------------------------------


class ScheduleState(NamedTuple):
    now: int = 0
    cursor: int = 0
    version: int = 0
    paused: bool = False
    looked: tuple[tuple[int, int, int] | None, ...] = (None, None)  # version, cursor, up to when
    fired: tuple[int, ...] = ()
    fault: str | None = None


@dataclass
class Schedules(Model):
    """Two pods that both believe that they lead, and an operator."""

    compares_cursor: bool = True
    compares_version: bool = True
    until: int = 3
    start = ScheduleState()

    def steps(self, state: ScheduleState) -> Iterator[Step]:
        if state.now < self.until:
            yield "tick", state._replace(now=state.now + 1)
        if state.version < 2:
            word = "resume" if state.paused else "pause"
            # What went by during a pause is not made up for.
            cursor = state.now if state.paused else state.cursor
            yield word, state._replace(paused=not state.paused, version=state.version + 1, cursor=cursor)
        for pod, seen in enumerate(state.looked):
            if not state.paused and state.cursor < state.now:
                row = (state.version, state.cursor, state.now)
                yield f"look {pod}", state._replace(looked=put(state.looked, pod, row))
            if seen is not None:
                yield f"fire {pod}", self._fire(state, pod, seen)

    def _fire(self, state: ScheduleState, pod: int, seen: tuple[int, int, int]) -> ScheduleState:
        version, cursor, to = seen
        state = state._replace(looked=put(state.looked, pod, None))
        if self.compares_version and version != state.version:
            return state
        if self.compares_cursor and cursor != state.cursor:
            return state
        if state.paused:
            state = state._replace(fault="it fired though it was paused")
        # Missed times are made up for by one job, for the newest of them.
        return state._replace(cursor=to, fired=tuple(sorted((*state.fired, to))))

    def wrong(self, state: ScheduleState) -> str | None:
        if state.fault is None and len(set(state.fired)) < len(state.fired):
            return "one fire time gave two jobs"
        return state.fault


# Drain ---------------------------------------------------------------------------------------------------------------

A_LEASE = 2  # in ticks
MOST_ATTEMPTS = 2


class DrainState(NamedTuple):
    job: str = "ready"
    attempt: int = 0
    pod: str = "serving"  # draining, gone
    runs: bool = False
    lease: int = A_LEASE
    deploys: int = 0
    fault: str | None = None


@dataclass
class Drain(Model):
    """One pod after the other is told to stop, in the middle of a long run that nothing is wrong with."""

    beats: bool = True  # through the drain
    uncharged: bool = True  # what is given back costs no attempt
    releases_first: bool = True  # before it signs off
    start = DrainState()

    def steps(self, state: DrainState) -> Iterator[Step]:
        if state.pod == "serving":
            if state.job == "ready" and state.attempt < MOST_ATTEMPTS:
                yield "claim", state._replace(job="running", attempt=state.attempt + 1, runs=True)
            yield "told to stop", state._replace(pod="draining")
        if state.pod != "gone":
            renewed = state.pod == "serving" or self.beats
            yield "tick", state._replace(lease=A_LEASE if renewed else max(0, state.lease - 1))
        if state.runs:
            yield "finish", self._settle(state, "done")
        if state.pod == "draining":
            if state.runs and (self.releases_first or state.lease == 0):
                charged = state.attempt - (1 if self.uncharged else 0)
                yield "release", self._settle(state._replace(attempt=charged), "ready")
            if not state.runs or not self.releases_first:
                yield "sign off", state._replace(pod="gone", lease=0)
        if state.job == "running" and state.lease == 0:
            fault = "a job was taken for crashed that was only told to stop"
            yield "rescue", state._replace(job="ready", fault=fault)
        if state.pod == "gone" and state.deploys < 3:
            yield "next pod", state._replace(pod="serving", lease=A_LEASE, runs=False, deploys=state.deploys + 1)

    def _settle(self, state: DrainState, job: str) -> DrainState:
        return state._replace(job=job if state.job == "running" else state.job, runs=False)

    def wrong(self, state: DrainState) -> str | None:
        if state.job == "ready" and state.attempt >= MOST_ATTEMPTS:
            return "deploys have used up its attempts"
        return state.fault


# A turn whose answer is lost -----------------------------------------------------------------------------------------


class TurnState(NamedTuple):
    job: str = "ready"
    owner: int | None = None  # the token that holds it
    asked: int | None = None  # the token of a claim under way
    done: bool = False  # the claim under way was carried out
    run: int | None = None  # what the pod runs, by token
    finishing: int | None = None  # a finish under way
    written: bool = False  # it was carried out
    accepted: int | None = None
    token: int = 0
    told: str | None = None


@dataclass
class Turn(Model):
    """One pod that lives on, and a storage whose answers get lost, before or after the commit."""

    compares: bool = True  # the beat's answer with the runs in hand: a claim it does not know is given back
    repeatable: bool = True  # a finish by the same token is accepted again
    start = TurnState()

    def steps(self, state: TurnState) -> Iterator[Step]:
        if state.asked is None and state.run is None and state.job == "ready" and state.token < MOST_CLAIMS:
            yield "send claim", state._replace(asked=state.token + 1, token=state.token + 1)
        if state.asked is not None:
            yield from self._claim(state, state.asked)
        if state.run is not None and state.finishing is None:
            yield "send finish", state._replace(finishing=state.run, written=False)
        if state.finishing is not None:
            yield from self._finish(state, state.finishing)
        unknown = state.job == "running" and state.owner not in (state.run, state.asked)
        if unknown and self.compares and state.finishing is None:
            yield "beat, give back", state._replace(job="ready", owner=None)

    def _claim(self, state: TurnState, token: int) -> Iterator[Step]:
        if not state.done:
            yield "fault: claim lost", state._replace(asked=None)
            if state.job == "ready":
                yield "claim", state._replace(job="running", owner=token, done=True)
        else:
            yield "claim answered", state._replace(asked=None, done=False, run=token)
            yield "fault: claim's answer lost", state._replace(asked=None, done=False)

    def _finish(self, state: TurnState, token: int) -> Iterator[Step]:
        if not state.written:
            yield "fault: finish lost", state._replace(finishing=None)
            if state.job == "running" and state.owner == token:
                yield "finish", state._replace(job="done", owner=None, accepted=token, written=True)
            elif state.accepted == token and self.repeatable:
                yield "finish again", state._replace(written=True)
            else:
                yield "finish refused", state._replace(finishing=None, run=None, told="stale")
        else:
            yield "finish answered", state._replace(finishing=None, written=False, run=None, told="accepted")
            yield "fault: finish's answer lost", state._replace(finishing=None, written=False)

    def wrong(self, state: TurnState) -> str | None:
        lied = state.told == "stale" and state.accepted is not None
        return "a pod was told that its accepted finish came too late" if lied else None

    def over(self, state: TurnState) -> bool | None:
        # The bound on tokens is the model's own: where they are used up, nothing more is asked of it.
        return state.told is not None or (state.token == MOST_CLAIMS and state.job == "ready")


# Suspects ------------------------------------------------------------------------------------------------------------

POISON = 3
TWICE = 2


class SuspectState(NamedTuple):
    jobs: tuple[str, ...]
    crashes: tuple[int, ...]
    pods_lost: int = 0


@dataclass
class Suspects(Model):
    """Job 0 kills every pod that runs it; the others are innocent (docs/adr/0012)."""

    apart: bool = True  # of jobs that have crashed twice, a pod runs one at a time
    innocents: int = 2

    def __post_init__(self) -> None:
        self.start = SuspectState(("ready",) * (1 + self.innocents), (0,) * (1 + self.innocents))

    def steps(self, state: SuspectState) -> Iterator[Step]:
        suspect = any(job == "running" and n >= TWICE for job, n in zip(state.jobs, state.crashes, strict=True))
        for which, job in enumerate(state.jobs):
            if job == "ready" and not (self.apart and suspect and state.crashes[which] >= TWICE):
                yield f"start {which}", state._replace(jobs=put(state.jobs, which, "running"))
            if job == "running" and which != 0:
                yield f"finish {which}", state._replace(jobs=put(state.jobs, which, "done"))
        if state.jobs[0] == "running":
            yield "fault: crash", self._crash(state)

    def _crash(self, state: SuspectState) -> SuspectState:
        crashes = tuple(n + (job == "running") for job, n in zip(state.jobs, state.crashes, strict=True))
        jobs = tuple(
            ("poison" if n >= POISON else "ready") if job == "running" else job
            for job, n in zip(state.jobs, crashes, strict=True)
        )
        return SuspectState(jobs, crashes, state.pods_lost + 1)

    def wrong(self, state: SuspectState) -> str | None:
        if "poison" in state.jobs[1:]:
            return "an innocent job was called poison"
        return "more pods were lost than one job may take" if state.pods_lost > POISON else None
