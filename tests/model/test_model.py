"""A state machine that tells memory, SQLite and PostgreSQL the same random programs and compares every answer, and
after each step every row.

    MODEL_EXAMPLES=2000   so many programs, others each time; by default the same few
    MODEL_STEPS=100       longer ones

How it differs from `tests/storages/test_*_agrees.py`: all three at once, whole rows after each step, lost answers, and
a failing program is made as short as it can be.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec import UNSET

from tests.storages.test_postgres_agrees import send
from treadle.core import answer as answering
from treadle.core import lifecycle
from treadle.core.answer import Given, NewAnswer
from treadle.core.backoff import Retry
from treadle.core.job import Change, Job, NewJob, QueueChange, State, UniqueClaim
from treadle.core.outcome import (
    Interrupted,
    Outcome,
    Snoozed,
    Stopped,
    Succeeded,
    Throttled,
    TimedOut,
    Undecodable,
    Waits,
)
from treadle.ports import Answered, Lane, RunReport, Storage, Want
from treadle.storages.postgres import claim
from treadle.testing import sabotage
from treadle.testing.conformance.builders import LEASE, a_pod, an_error, an_id, failing

from .stages import Duos, Stages

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
STEPS = int(os.environ.get("MODEL_STEPS", "40"))
QUEUES = ("mail", "media")
TASKS = ("send", "scale")
# Storages of `make sabotage` that lack a safeguard which these programs rest on.
FOUND = frozenset(
    """
    InsertIsNotRepeatable UniqueIsNotChecked KeyIsNotFreedAtTheEnd ClaimDoesNotCharge ClaimDoesNotCheckTheState
    ClaimIgnoresGates LapsedPodMayClaim RecoverForgets RepeatedFinishIsStale BeatRevivesALostPod BeatHidesCancels
    RescueDoesNotCheckTheLease RescueDeclaresNobodyLost SuccessWithoutToken RetryWithoutToken StateIsNotChecked
    CancelFlagIsIgnored CrashesAreNotCounted ReleaseIsCharged FinishPassesOverTheKept TheFirstRequestIsKept
    EveryRequestHasItsOwnId TheCapIsIgnored AnswerIgnoresTheClaim TheLastWordWins EarlyAnswerIsForgotten
    EndOfTheWaitIgnoresTheBeat AnswerKeepsTheCharge
    """.split()  # noqa: SIM905
)
TERMINAL = (State.SUCCEEDED, State.FAILED, State.CANCELLED)

queues = st.sampled_from(QUEUES)
delays = st.sampled_from((0.0, 0.0, 5.0, 40.0))
priorities = st.sampled_from((0, 0, 5, -100))
which = st.integers(0, 1 << 16)  # one of however many there are
newest = st.integers(-6, -1)
places = st.sampled_from((-1, -1, -1, -2, -3))  # of pods, the newest first
rules = st.none() | st.builds(
    UniqueClaim,
    st.sampled_from("aab"),
    st.sampled_from((None, 60.0)),
    st.booleans(),
    st.sampled_from(("skip", "replace", "keep_last", "keep_last")),
    st.sampled_from((None, 3.0)),
)
requests = st.fixed_dictionaries(
    {
        "task": st.sampled_from(TASKS),
        "queue": queues,
        "args": st.sampled_from(("{}", '{"n":1}')),
        "priority": priorities,
        "delay": st.sampled_from((0.0, 0.0, 0.0, 5.0)),
        "max_attempts": st.sampled_from((None, 1, 2)),
        "timeout": st.sampled_from((None, 15.0)),
        "tags": st.sampled_from(((), ("vip",))),
        "unique": rules,
    }
)
outcomes = st.sampled_from(
    (
        *[Succeeded('"done"')] * 4,
        failing(after=10.0),
        failing(after=None),
        failing(final=True),
        TimedOut(an_error(kind="timeout")),
        Undecodable(an_error(kind="undecodable")),
        Snoozed(5.0),
        Throttled(None),
        Throttled(30.0),
        Stopped(an_error(kind="cancelled")),
        Interrupted(),
        Interrupted(2.0),
    )
)
words = st.sampled_from((answering.result(1), answering.result(2), answering.error("no"), answering.again(5.0)))
backs = st.sampled_from((Interrupted(), Snoozed(1.0), failing(after=1.0)))
edits = st.sampled_from(
    (
        {"paused": True},
        {"paused": False},
        {"paused": False, "cool_until": None},
        {"keep_failed": 20.0, "keep_succeeded": 5.0},
    )
)
wants = st.lists(
    st.builds(
        lambda queue, tasks, limit: Want(queue, limit, (Lane(frozenset(tasks), limit),)),
        queues,
        st.sets(st.sampled_from(TASKS), min_size=1),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda want: want.queue,
)
ALL = [Want(queue, 4, (Lane(frozenset(TASKS), 4),)) for queue in QUEUES]
# What each step draws, and how often it is taken.
STEPS_OF_ALL_KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "insert": (4, {"wishes": st.lists(requests, min_size=1, max_size=4)}),
    "insert_lost_answer": (2, {"wish": requests, "again": which}),
    "register": (1, {}),
    "claim": (2, {"pod": places, "wanted": wants, "lost": st.booleans()}),
    "turn": (8, {"runs": st.lists(st.tuples(newest, outcomes), min_size=1, max_size=4), "pod": places}),
    "zombie": (3, {"run": newest, "back": backs, "late": outcomes}),
    "recover": (1, {"token": which}),
    "finish_lost_answer": (2, {"run": newest, "outcome": outcomes, "follow_up": requests}),
    "send_again": (1, {"change": which}),
    "beat": (1, {"pod": places, "renew": st.booleans()}),
    "sign_off": (1, {"pod": places}),
    "rescue": (1, {"twice": st.booleans(), "expires": st.booleans()}),
    "lapse": (2, {"beats": st.booleans(), "pod": places}),
    "operate": (
        6,
        {
            "job": which,
            "claimed": st.booleans(),
            "queue": queues,
            "delay": delays,
            "priority": priorities,
            "number": st.integers(0, 3),
            "lost": st.booleans(),
        },
    ),
    "park": (3, {"run": newest, "early": st.none() | words, "again": st.booleans()}),
    "say": (3, {"answer": newest, "word": words, "again": st.booleans()}),
    "keep_alive": (1, {"answer": newest}),
    "end_waits": (2, {"given": st.none() | words, "twice": st.booleans()}),
    "edit_queue": (2, {"queue": queues, "edit": edits, "seconds": st.sampled_from((None, 10.0))}),
    "hold": (1, {"again": requests}),
    "prune": (2, {"state": st.sampled_from(TERMINAL)}),
    "wait": (
        3,
        {"seconds": st.sampled_from((0.001, 1.0, 6.0, 11.0, 21.0)), "beats": st.sampled_from((True, True, False))},
    ),
}
steps = st.sampled_from([name for name, (often, _) in STEPS_OF_ALL_KINDS.items() for _ in range(often)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(STEPS_OF_ALL_KINDS[name][1]))
)
_stages: list[Stages | Duos] = []


class Programs(RuleBasedStateMachine):
    """What anybody may do to a storage."""

    def __init__(self) -> None:
        super().__init__()
        self.trio = _stages[0].begin()
        self.asked: list[NewJob] = []
        self.claimed: list[Job] = []  # as they were claimed: most of what is made of them is stale
        self.sent: list[Change] = []
        self.pods: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        self.answers: list[str] = []

    def ask(self, verb: Callable[[Storage], Awaitable[Any]], shape: Callable[[Any], Any] = lambda x: x) -> Any:
        return _stages[0].runner.run(self.trio.ask(verb, shape))

    def rows(self) -> Any:
        return _stages[0].runner.run(self.trio.compare())

    @invariant()
    def all_rows_are_the_same(self) -> None:
        self.rows()

    # One rule, with weights: among many, Hypothesis would spend most programs on what changes nothing.
    @rule(step=steps)
    def step(self, step: tuple[str, dict[str, Any]]) -> None:
        name, drawn = step
        getattr(self, name)(**drawn)

    # Enqueuers -------------------------------------------------------------------------------------------------------

    def insert(self, wishes: list[dict[str, Any]]) -> None:
        jobs = [NewJob(id=an_id(), **wish) for wish in wishes]
        self.asked += jobs
        self.ask(lambda storage: storage.insert(jobs))

    def insert_lost_answer(self, wish: dict[str, Any], again: int) -> None:
        """Sent twice, with one that was sent long ago: the same answers, and no row more."""
        self.asked.append(NewJob(id=an_id(), **wish))
        jobs = [self.asked[again % len(self.asked)], self.asked[-1]]
        first = self.ask(lambda storage: storage.insert(jobs))
        before = self.rows()
        assert list(self.ask(lambda storage: storage.insert(jobs))) == list(first)
        assert self.rows() == before

    # Pods ------------------------------------------------------------------------------------------------------------

    @initialize(wishes=st.lists(requests, min_size=2, max_size=4))
    def begin(self, wishes: list[dict[str, Any]]) -> None:
        self.register()
        self.insert(wishes)

    def register(self) -> None:
        card = a_pod(queues=dict.fromkeys(QUEUES, 3), tasks=TASKS)
        self.pods.append(card.id)
        self.ask(lambda storage: storage.register(card))

    def run(self, place: int) -> Job:
        return self.claimed[max(place, -len(self.claimed))]

    def pod(self, place: int) -> str:
        return self.pods[max(place, -len(self.pods))]

    def claim(self, pod: int, wanted: list[Want], lost: bool) -> None:
        """Where the answer was lost, the token brings it back."""
        name, token = self.pod(pod), f"token-{len(self.tokens)}"
        self.tokens.append((name, token))
        claimed = self.ask(lambda storage: storage.claim(name, token, wanted))
        self.claimed += claimed.jobs
        if lost:
            found = self.ask(lambda storage: storage.recover(name, token), lambda jobs: sorted(jobs, key=_id))
            assert sorted(found, key=_id) == sorted(claimed.jobs, key=_id)

    def turn(self, runs: list[tuple[int, Outcome]], pod: int) -> None:
        """Some of the newest claims end, and all that is due is claimed. Those that were finished, rescued or claimed
        anew meanwhile are stale."""
        if self.claimed:
            self.apply([lifecycle.finish(self.run(place), outcome, Retry(), 0.5) for place, outcome in runs])
        self.claim(pod, ALL, False)

    def zombie(self, run: int, back: Outcome, late: Outcome) -> None:
        """A run goes back and is claimed anew; then its old owner speaks once more."""
        if not self.claimed:
            return
        job = self.run(run)
        self.apply([lifecycle.finish(job, back, Retry(), 0.5)])
        self.wait(1.0, True)
        self.claim(-1, ALL, False)
        self.apply([lifecycle.finish(job, late, Retry(), 0.5)])

    def hold(self, again: dict[str, Any]) -> None:
        """A unique job that holds its key after a success; another asks for it while it runs, and once it has ended."""
        held = UniqueClaim("a", 60.0, True, "replace")
        self.insert([{"task": "send", "queue": "mail", "priority": 100, "unique": held}])
        self.claim(-1, ALL, False)
        self.insert([{**again, "unique": held}])
        if self.claimed:
            self.apply([lifecycle.finish(self.run(-1), Succeeded(), Retry(), 0.5)])
        self.insert([{**again, "unique": held}])
        self.prune(State.SUCCEEDED)

    def recover(self, token: int) -> None:
        pod, chosen = self.tokens[token % len(self.tokens)] if self.tokens else ("nobody", "none")
        self.ask(lambda storage: storage.recover(pod, chosen), lambda jobs: sorted(jobs, key=_id))

    def finish_lost_answer(self, run: int, outcome: Outcome, follow_up: dict[str, Any]) -> None:
        """Sent twice: what was accepted is accepted again, and nothing happens twice."""
        if not self.claimed:
            return
        if isinstance(outcome, Succeeded):
            self.asked.append(NewJob(id=an_id(), **follow_up))
            outcome = Succeeded(outcome.result, follow_ups=(self.asked[-1],))
        job = self.run(run)
        change = lifecycle.finish(job, outcome, Retry(), 0.5)
        (first,) = self.apply([change])
        before = self.rows()
        (second,) = self.apply([change], obey=False)
        assert second.accepted or not first.accepted
        assert second.repeated or not second.accepted
        assert self.rows() == before

    def apply(self, changes: list[Change], *, obey: bool = True) -> Any:
        self.sent += changes
        answers = self.ask(lambda storage: send(storage, changes))
        told = list(zip(changes, answers, strict=True))
        instead = [lifecycle.obey_cancel(change) for change, answer in told if answer.cancel_wanted]
        instead += [
            lifecycle.take_over(change, answer.kept)
            for change, answer in told
            if answer.kept is not UNSET and change.takes is None
        ]
        if instead and obey:
            self.ask(lambda storage: send(storage, instead))
        return answers

    def send_again(self, change: int) -> None:
        """Somebody's Change from long ago arrives once more."""
        if self.sent:
            recent = self.sent[-8:]
            self.apply([recent[change % len(recent)]])

    def beat(self, pod: int, renew: bool) -> None:
        name = self.pod(pod)
        runs = [RunReport(job.id, job.token or "", "a slot") for job in self.claimed[-4:]]
        self.ask(
            lambda storage: storage.beat(name, LEASE, runs, renew=renew),
            lambda told: (told.lost, sorted(told.held, key=_id), sorted(told.queues, key=_name), told.live_pods),
        )

    def sign_off(self, pod: int) -> None:
        name = self.pod(pod)
        self.ask(lambda storage: storage.sign_off(name))

    # Answers from outside --------------------------------------------------------------------------------------------

    def park(self, run: int, early: Given | None, again: bool) -> None:
        """A run asks, and waits; perhaps it is answered before. Most of them are stale, and can ask for nothing."""
        if not self.claimed:
            return
        job, id = self.run(run), f"answer-{len(self.answers)}"
        self.answers.append(id)
        new = NewAnswer(id=id, job=job.id, claim=job.token or "", timeout=10.0)
        for _ in range(1 + again):
            self.ask(lambda storage: storage.open_answer(new))
        if early is not None:
            self.say(-1, early, again)
        change = lifecycle.finish(job, Waits(id), Retry(), 0.5)
        for _ in range(1 + again):
            self.apply([change])

    def say(self, answer: int, word: Given, again: bool) -> None:
        """Said again, it is the same, and changes nothing."""
        if not self.answers:
            return
        id = self.answers[max(answer, -len(self.answers))]
        told = self.ask(lambda storage: storage.answer(id, word), _said)
        if again:
            before = self.rows()
            second = self.ask(lambda storage: storage.answer(id, word), _said)
            assert second.outcome == ("same" if told.outcome == "won" else told.outcome)
            assert self.rows() == before

    def keep_alive(self, answer: int) -> None:
        if self.answers:
            id = self.answers[max(answer, -len(self.answers))]
            self.ask(lambda storage: storage.beat_answer(id), _said)

    def end_waits(self, given: Given | None, twice: bool) -> None:
        """What the Rescuer does in time; somebody may answer, or keep it alive, after it has looked."""
        self.wait(11.0, True)
        found = self.ask(
            lambda storage: storage.waits_over(100),
            lambda found: sorted((each.job.id, each.answer.id) for each in found),
        )
        changes = [lifecycle.expired(each.job, each.answer.id, 10.0, Retry(), 0.5) for each in found]
        for each in found[:1]:
            if given is not None:
                self.ask(lambda storage, id=each.answer.id: storage.answer(id, given), _said)
            elif twice:
                self.ask(lambda storage, id=each.answer.id: storage.beat_answer(id), _said)
        for _ in range(1 + twice):
            self.apply(changes)

    def abandoned(self, *, expires: bool = False) -> list[Change]:
        found = self.ask(
            lambda storage: storage.abandoned(3, 5.0), lambda found: [(each.job, each.why) for each in found]
        )
        changes = [lifecycle.rescue(each.job, "pod") for each in found if each.why != "deadline"]
        if expires:
            changes += [lifecycle.expire(each.job, 0.5) for each in found if each.why == "deadline"]
        return changes

    def rescue(self, twice: bool, expires: bool) -> None:
        """What the Rescuer does; twice, as two of them would."""
        changes = self.abandoned(expires=expires)
        for _ in range(1 + twice):
            self.apply(changes)

    def lapse(self, beats: bool, pod: int) -> None:
        """Every lease runs out. A rescuer has looked; before it writes, a pod that was only slow may speak. And its
        wish arrives once more, when others run the jobs."""
        self.wait(LEASE + 1, False)
        rescues = self.abandoned()
        if beats:
            self.beat(pod, True)
        self.apply(rescues)
        self.beat(pod, True)
        self.register()
        self.claim(-1, ALL, False)
        self.apply(rescues)

    # Operators -------------------------------------------------------------------------------------------------------

    def look(self, job: int, claimed: bool) -> Job | None:
        known = [each.id for each in (self.claimed[-3:] if claimed and self.claimed else self.asked)]
        found = self.ask(lambda storage: storage.get([known[job % len(known)]]), list)
        return found[0] if found else None

    def operate(
        self, job: int, claimed: bool, queue: str, delay: float, priority: int, number: int, lost: bool
    ) -> None:
        seen = self.look(job, claimed)
        if seen is None:
            return
        if seen.state in TERMINAL:
            choices = [
                lifecycle.revive(seen, delay=delay, priority=priority),
                lifecycle.revive(seen, queue=queue),
                lifecycle.revive(seen),
                lifecycle.remove(seen),
            ]
        elif seen.state is State.WAITING and seen.behind is None:
            choices = [lifecycle.cancel(seen), lifecycle.move(seen, queue), lifecycle.set_priority(seen, priority)]
        elif seen.state is State.RUNNING or seen.behind is not None:
            choices = [lifecycle.cancel(seen)]
        else:
            choices = [
                lifecycle.cancel(seen),
                lifecycle.reschedule(seen, delay=delay),
                lifecycle.move(seen, queue),
                lifecycle.set_priority(seen, priority),
            ]
        change = choices[number % len(choices)]
        assert change is not None
        self.apply([change])
        if lost:
            before = self.rows()["job"]
            self.apply([change])
            assert self.rows()["job"] == before

    def edit_queue(self, queue: str, edit: dict[str, Any], seconds: float | None) -> None:
        until: dict[str, Any] = (
            {"paused_until": self.trio.clock.now() + seconds} if seconds and edit.get("paused") else {}
        )
        change = QueueChange(name=queue, **edit, **until)
        self.ask(lambda storage: storage.apply([change]))

    def prune(self, state: State) -> None:
        self.ask(lambda storage: storage.prune(state), lambda pruned: pruned.removed)

    # Time ------------------------------------------------------------------------------------------------------------

    def wait(self, seconds: float, beats: bool) -> None:
        self.trio.clock.advance(seconds)
        if beats:
            self.beat(-1, True)

    def teardown(self) -> None:
        self.ask(lambda storage: storage.queues(), list)
        self.ask(
            lambda storage: storage.pods(),
            lambda pods: sorted((pod.card.id, pod.lost, max(0.0, pod.lease_left)) for pod in pods),
        )


def _said(told: Answered) -> Any:
    return told.outcome, told.job, told.released


def _id(of: Any) -> str:
    return str(of.id)


def _name(of: Any) -> str:
    return str(of.name)


@contextmanager
def told_to(stages: Stages | Duos) -> Generator[None]:
    # A slow machine must not look like a table full of dead rows: a mark is a hint that this clock would spoil.
    before, claim.SLOW_SCAN = claim.SLOW_SCAN, 1e9  # type: ignore[misc]
    _stages[:] = [stages]
    try:
        yield
    finally:
        _stages.clear()
        stages.close()
        claim.SLOW_SCAN = before  # type: ignore[misc]


def run(examples: int, **options: Any) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=STEPS, database=None, print_blob=True, deadline=None, **options
    )
    run_state_machine_as_test(Programs, settings=chosen)  # type: ignore[no-untyped-call]


def test_every_program_is_answered_alike_by_all_three() -> None:
    with told_to(Stages()):
        run(EXAMPLES or 10, derandomize=not EXAMPLES)


# The model is tested: a storage without one safeguard disagrees. As a rule in the first few programs; which these are
# depends on the constants in the code, which Hypothesis collects, so a change elsewhere can make it a few hundred.
MOST_PROGRAMS = 1000


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_storage_without_one_safeguard_is_found(name: str) -> None:
    (broken,) = {each for each in sabotage.every() if each.__name__ == name}
    with told_to(Duos(broken)), pytest.raises(AssertionError):
        run(MOST_PROGRAMS, derandomize=True, phases=[Phase.generate], report_multiple_bugs=False)
