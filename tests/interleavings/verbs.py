"""The verbs that are set against one another, and the situations in which they meet.

Everything is about one job, one unique key and two pods: whatever two verbs can do to each other, they do here. Names
are fixed, so that a situation is the same in every storage and every process.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from treadle.core import answer as answering
from treadle.core import lifecycle
from treadle.core.answer import NewAnswer
from treadle.core.backoff import Retry
from treadle.core.firing import Fire, Shot
from treadle.core.job import Job, NewJob, QueueChange, State, UniqueClaim
from treadle.core.outcome import Interrupted, Succeeded, Waits
from treadle.core.pod import PodCard
from treadle.core.schedule import Plan, Progress, Schedule
from treadle.ports import Applied, Lane, RunReport, Storage, Want
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import LEASE, a_pod, failing, finished

LEFT: Final = 0
RIGHT: Final = 1

JOB: Final = "019a0000-0000-7000-8000-000000000001"
FIRED: Final = "019a0000-0000-7000-8000-0000000000f1"
BEHIND: Final = "019a0000-0000-7000-8000-0000000000c1"
RIVALS: Final = ("019a0000-0000-7000-8000-0000000000a1", "019a0000-0000-7000-8000-0000000000b1")
OWNER: Final = "owner"  # the pod that the job was claimed by, where it was
POD: Final = ("left-pod", "right-pod")
TOKEN: Final = "the-claim"
ANSWER: Final = "the-answer"
PATIENCE: Final = 5.0  # how long it is waited for
KEPT: Final = 60.0
FIRE_AT: Final = 1_699_999_980.0
WANTS: Final = (Want("mail", 5, (Lane(frozenset({"send"}), 5),)), Want("media", 5, (Lane(frozenset({"send"}), 5),)))

# The storage, and whether it is the left or the right of two: what a verb may not share with its like differs by it.
Verb: TypeAlias = Callable[[Storage, int], Awaitable[Any]]


def a_request(id: str = JOB) -> NewJob:
    return NewJob(id=id, task="send", queue="mail", max_attempts=3, unique=UniqueClaim("key"))


def a_last_request(id: str) -> NewJob:
    return msgspec.structs.replace(a_request(id), unique=UniqueClaim("key", on_conflict="keep_last"))


def a_card(id: str) -> PodCard:
    return a_pod(id=id, label=id, queues={"mail": 5, "media": 5}, tasks=("send",))


def a_schedule(*, version: int = 1, paused: bool = False) -> Schedule:
    plan = Plan(expression="* * * * *", task="send", queue="mail", paused=paused)
    progress = Progress(cursor=FIRE_AT - 60)
    return Schedule(name="nightly", version=version, plan=plan, anchor=0.0, created_at=0.0, progress=progress)


# Situations ----------------------------------------------------------------------------------------------------------


async def ready(storage: Storage, clock: FakeClock) -> None:
    """The job is due, and nobody has it."""
    await storage.insert([a_request()])
    await _pods(storage, OWNER, *POD)


async def running(storage: Storage, clock: FakeClock) -> None:
    """A live pod has it, and somebody outside may answer it."""
    await storage.insert([a_request()])
    await _pods(storage, OWNER, *POD)
    await storage.claim(OWNER, TOKEN, WANTS)
    await storage.open_answer(NewAnswer(id=ANSWER, job=JOB, claim=TOKEN, timeout=PATIENCE))


async def waiting(storage: Storage, clock: FakeClock) -> None:
    """It has waited too long for an answer, and nobody has acted on it yet."""
    await running(storage, clock)
    await wait(storage, LEFT)
    clock.advance(PATIENCE)


async def keeping(storage: Storage, clock: FakeClock) -> None:
    """A live pod has it, and a request is kept behind it."""
    await running(storage, clock)
    await storage.insert([a_last_request(BEHIND)])


async def lapsed(storage: Storage, clock: FakeClock) -> None:
    """A pod has it whose lease is over, and nobody has acted on it yet."""
    await storage.insert([a_request()])
    await _pods(storage, OWNER)
    await storage.claim(OWNER, TOKEN, WANTS)
    clock.advance(LEASE + 1)
    await _pods(storage, *POD)


async def ended(storage: Storage, clock: FakeClock) -> None:
    """It has failed, longer ago than it is kept."""
    await running(storage, clock)
    job = (await storage.get([JOB]))[0]
    await storage.apply([finished(job, failing(final=True))])
    await storage.apply([QueueChange(name="mail", keep_failed=KEPT)])
    clock.advance(KEPT + 1)
    for id in POD:
        await storage.beat(id, LEASE, [])


async def _pods(storage: Storage, *ids: str) -> None:
    for id in ids:
        await storage.register(a_card(id))
    await storage.apply([QueueChange(name="media", paused=False)])  # whatever is about to be used is there
    if not (await storage.schedules())[1]:
        await storage.save_schedule(a_schedule(), 0)


SITUATIONS: Final = {each.__name__: each for each in (ready, running, waiting, keeping, lapsed, ended)}


# Verbs ---------------------------------------------------------------------------------------------------------------
#
# A Change is made of the job as somebody may have seen it: in the state that it needs, whatever is true now. So each
# verb is worth trying in each situation, and where it comes too early or too late it must be told so.


def _seen(state: State) -> Job:
    has_claim = state in (State.RUNNING, State.WAITING)
    claim: dict[str, Any] = {"pod": OWNER, "token": TOKEN, "attempt": 1} if has_claim else {}
    return Job(id=JOB, task="send", queue="mail", state=state, max_attempts=3, unique_key="key", **claim)


async def _apply(storage: Storage, change: Any) -> Applied:
    return (await storage.apply([change]))[0]


async def claim(storage: Storage, side: int) -> Any:
    return (await storage.claim(POD[side], f"claim-{side}", WANTS)).jobs


async def finish(storage: Storage, side: int) -> Any:
    return await _apply(storage, finished(_seen(State.RUNNING), Succeeded('"done"')))


async def fail(storage: Storage, side: int) -> Any:
    return await _apply(storage, finished(_seen(State.RUNNING), failing()))


async def release(storage: Storage, side: int) -> Any:
    return await _apply(storage, finished(_seen(State.RUNNING), Interrupted()))


async def wait(storage: Storage, side: int) -> Any:
    return await _apply(storage, finished(_seen(State.RUNNING), Waits(ANSWER)))


async def answer(storage: Storage, side: int) -> Any:
    """The two sides say different things."""
    return await storage.answer(ANSWER, answering.result(side))


async def beat_answer(storage: Storage, side: int) -> Any:
    return await storage.beat_answer(ANSWER)


async def end_wait(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.expired(_seen(State.WAITING), ANSWER, PATIENCE, Retry(), 0.5))


async def beat(storage: Storage, side: int) -> Any:
    beaten = await storage.beat(OWNER, LEASE, [RunReport(JOB, TOKEN, "a slot")])
    return beaten.lost, beaten.held


async def rescue(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.rescue(_seen(State.RUNNING), "owner"))


async def cancel(storage: Storage, side: int) -> Any:
    """By somebody who has seen it before it started."""
    return await _apply(storage, lifecycle.cancel(_seen(State.READY)))


async def ask_cancel(storage: Storage, side: int) -> Any:
    """By somebody who has seen it run."""
    return await _apply(storage, lifecycle.cancel(_seen(State.RUNNING)))


async def insert_unique(storage: Storage, side: int) -> Any:
    return (await storage.insert([a_request(RIVALS[side])]))[0]


async def keep_last(storage: Storage, side: int) -> Any:
    return (await storage.insert([a_last_request(RIVALS[side])]))[0]


async def hand_over(storage: Storage, side: int) -> Any:
    """A finish, as a pod writes it: what is kept takes over."""
    change = finished(_seen(State.RUNNING), Succeeded('"done"'))
    answer = await _apply(storage, change)
    while answer.kept is not UNSET:
        answer = await _apply(storage, lifecycle.take_over(change, answer.kept))
    return answer


async def unkeep(storage: Storage, side: int) -> Any:
    """Somebody cancels what is kept, and looks again if it was faster."""
    while True:
        found = await storage.get([BEHIND])
        if not found or found[0].behind is None:
            return Applied(False)
        answer = await _apply(storage, lifecycle.cancel(found[0]))
        if answer.accepted:
            return answer


async def revive(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.revive(_seen(State.FAILED)))


async def reschedule(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.reschedule(_seen(State.READY), delay=0.0))


async def postpone(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.reschedule(_seen(State.READY), delay=60.0))


async def move(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.move(_seen(State.READY), "media"))


async def prune(storage: Storage, side: int) -> Any:
    return (await storage.prune(State.FAILED)).removed


async def remove(storage: Storage, side: int) -> Any:
    return await _apply(storage, lifecycle.remove(_seen(State.FAILED)))


async def pause(storage: Storage, side: int) -> Any:
    return await _apply(storage, QueueChange(name="mail", paused=True, paused_by="ann"))


async def sign_off(storage: Storage, side: int) -> Any:
    return await storage.sign_off(OWNER)


async def fire(storage: Storage, side: int) -> Any:
    shot = Shot(FIRE_AT, NewJob(id=FIRED, task="send", queue="mail"))
    return await storage.fire(Fire(name="nightly", version=1, cursor=FIRE_AT - 60, to=FIRE_AT, shots=(shot,)))


async def edit(storage: Storage, side: int) -> Any:
    """Pauses the schedule; the two sides would have it at different times."""
    wanted = a_schedule(version=2, paused=True)
    return await storage.save_schedule(msgspec.structs.replace(wanted, paused_by=f"operator {side}"), 1)


async def lead(storage: Storage, side: int) -> Any:
    return await storage.lead(POD[side], 15.0)


VERBS: Final[dict[str, Verb]] = {
    each.__name__: each
    for each in (
        wait, answer, beat_answer, end_wait, claim, finish, fail, release, beat, rescue, cancel, ask_cancel,
        insert_unique, keep_last, hand_over, unkeep, revive, reschedule, postpone, move, prune, remove, pause, sign_off,
        fire, edit, lead,
    )
}  # fmt: skip
# Every unordered pair, each verb against itself included.
PAIRS: Final = list(itertools.combinations_with_replacement(VERBS, 2))


def plain(answer: Any) -> Any:
    """An answer as plain values; of an error, its kind."""
    if isinstance(answer, BaseException):
        return f"raised {type(answer).__name__}: {answer}"
    return msgspec.to_builtins(answer)


# Who may win ---------------------------------------------------------------------------------------------------------

# In each situation, verbs of which exactly one may be told that it won, whichever two of them meet.
ONE_WINS: Final[dict[str, tuple[frozenset[str], ...]]] = {
    "ready": (frozenset({"claim", "cancel"}),),
    "running": (frozenset({"finish", "fail", "release", "wait"}), frozenset({"answer"})),
    "waiting": (frozenset({"answer", "end_wait"}), frozenset({"beat_answer", "end_wait"})),
    "keeping": (frozenset({"hand_over"}),),
    "lapsed": (frozenset({"finish", "fail", "release", "rescue"}), frozenset({"beat", "rescue"})),
    "ended": (frozenset({"revive", "insert_unique"}), frozenset({"revive", "prune", "remove"})),
}
# Everywhere, of two of a kind.
ONE_OF_TWO: Final = frozenset({"fire", "edit", "lead"})


def has_won(verb: str, answer: Any) -> bool:
    """Whether a caller was told that it was this very call that did it."""
    match verb:
        case "claim" | "prune" | "edit":
            return bool(answer)
        case "beat":
            return not answer[0]
        case "insert_unique":
            return bool(answer["outcome"] == "inserted")
        case "answer" | "beat_answer":
            return bool(answer["outcome"] == "won")
        case "fire":
            return answer["outcome"] == "fired" and not answer["repeated"]
        case "lead":
            return answer is not None
        case _:
            return answer["accepted"] and not answer["repeated"]


def must_have_one_winner(pair: tuple[str, str], situation: str) -> bool:
    if pair[0] == pair[1] and pair[0] in ONE_OF_TWO:
        return True
    return any({*pair} <= rivals and not {*pair} <= {"beat", "beat_answer"} for rivals in ONE_WINS[situation])
