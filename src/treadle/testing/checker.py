"""Checker: reads a history and what is stored in the end, and says which promise was broken.

The numbers are those of the invariants in docs/guarantees.md. The checker replays every job's life from the events; it
knows nothing of the code that made them. It is itself tested with histories in which one event was dropped, doubled or
swapped: each must be rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ..core.job import DEFAULT_MAX_ATTEMPTS, LIVE, POISON_CRASHES, TERMINAL, Job, State
from .history import Event

# A run that was lost is stopped as soon as its pod hears of it; a task may take its time to obey.
STOPPED_WITHIN = 15.0
# Two readings of one clock may differ by a rounding.
_BLINK = 0.001


class Broken(Struct, frozen=True):
    """One broken promise."""

    number: int
    text: str


class _Life:
    """One job, as the events tell it."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.inserted = False
        self.key: str | None = None
        self.max_attempts: int | None = None
        self.owner: str | None = None  # the token of the open claim
        self.owner_pod = ""
        self.tokens: set[str] = set()
        self.charges = 0
        self.ended: str | None = None  # the state in which it ended, until a revive
        self.ended_token: str | None = None
        self.crashes = 0
        self.lost: dict[str, tuple[str, float]] = {}  # token that was rescued → its pod, and when


class Checker:
    """Replays a history. `final` is every stored job after healing; without it only what the events show is checked."""

    def __init__(
        self,
        events: Iterable[Event],
        final: Sequence[Job] | None = None,
        *,
        converged: bool = True,
        effects: bool = True,
    ) -> None:
        self.broken: list[Broken] = []
        self._with_effects = effects  # whether tasks said what they did
        self._lives: dict[str, _Life] = {}
        self._holders: dict[str, str] = {}  # unique key → the live job that holds it
        self._leases: dict[str, tuple[float, float]] = {}  # pod → when its last beat was accepted, and for how long
        self._heard: dict[str, list[float]] = {}  # pod → when its beats were answered
        self._gone: set[str] = set()
        self._effects: set[tuple[str, str]] = set()
        self._fires: set[tuple[str, float]] = set()
        self._asked: dict[str, str] = {}
        self._accepted: set[tuple[str, str]] = set()
        self._told: set[tuple[str, str]] = set()
        self._fenced: dict[str, str] = {}
        for event in events:
            getattr(self, f"_on_{event.kind}")(event)
        if final is not None:
            self._finish({job.id: job for job in final}, converged)

    def _break(self, number: int, text: str) -> None:
        self.broken.append(Broken(number, text))

    def _life(self, id: str) -> _Life:
        return self._lives.setdefault(id, _Life(id))

    # Events ----------------------------------------------------------------------------------------------------------

    def _on_asked(self, event: Event) -> None:
        for id in event.ids:
            # What was once unknown and is asked again counts by its last answer, but `ok` stays.
            if self._asked.get(id) != "ok":
                self._asked[id] = event.how

    def _on_inserted(self, event: Event) -> None:
        life = self._life(event.id)
        if life.inserted:
            self._break(2, f"job {event.id} was inserted twice")
        life.inserted = True
        life.key, life.max_attempts = event.key, event.max_attempts
        self._hold(life)

    def _on_replaced(self, event: Event) -> None:
        life = self._life(event.id)
        life.charges = life.crashes = 0

    def _hold(self, life: _Life) -> None:
        if life.key is None:
            return
        holder = self._holders.get(life.key)
        if holder is not None and holder != life.id:
            self._break(10, f"jobs {holder} and {life.id} are alive with one unique key")
        self._holders[life.key] = life.id

    def _on_claimed(self, event: Event) -> None:
        life = self._life(event.id)
        if not life.inserted:
            self._break(2, f"job {event.id} was claimed, and nobody inserted it")
        if event.token in life.tokens:
            self._break(4, f"job {event.id} was claimed twice under the token {event.token}")
        if life.owner is not None:
            self._break(4, f"job {event.id} was claimed by {event.pod} while {life.owner_pod} owned it")
        if life.ended is not None:
            self._break(8, f"job {event.id} was claimed after it had {life.ended}")
        life.tokens.add(event.token)
        life.owner, life.owner_pod = event.token, event.pod
        life.charges += 1
        most = life.max_attempts or DEFAULT_MAX_ATTEMPTS
        if life.charges > most:
            self._break(9, f"job {event.id} was claimed {life.charges} times, and {most} are allowed")

    def _on_applied(self, event: Event) -> None:
        life = self._life(event.id)
        if event.why == "revived":
            if life.ended is None:
                self._break(3, f"job {event.id} was revived, and had not ended")
            life.ended = life.ended_token = None
            life.charges = life.crashes = 0
            self._hold(life)
            return
        if life.ended is not None:
            self._break(8, f"job {event.id} had {life.ended}, and then was {event.why}")
        if event.token:
            self._accepted.add((event.id, event.token))
            self._end_run(life, event)
        if event.to in TERMINAL:
            life.ended, life.ended_token = event.to, event.token
            if life.key is not None and self._holders.get(life.key) == life.id:
                del self._holders[life.key]

    def _end_run(self, life: _Life, event: Event) -> None:
        if life.owner != event.token:
            self._break(4, f"job {event.id}: {event.why} was accepted from {event.token}, which does not own it")
        if event.to == State.RUNNING:
            return
        if event.rescue:
            life.crashes += 1
            if life.crashes > POISON_CRASHES:
                self._break(9, f"job {event.id} was rescued {life.crashes} times")
            self._check_rescue(life, event)
            life.lost[event.token] = (life.owner_pod, event.at)
        if not event.charged:
            life.charges -= 1
        life.owner = None

    def _on_answered(self, event: Event) -> None:
        """What waited was answered: the charge of the attempt that waited is returned."""
        self._life(event.id).charges -= 1

    def _check_rescue(self, life: _Life, event: Event) -> None:
        heard, lease = self._leases.get(life.owner_pod, (event.at, 0.0))
        if life.owner_pod not in self._gone and event.at - heard < lease - _BLINK:
            since = f"{event.at - heard:.1f} s after a beat of its pod, whose lease is {lease:g} s"
            self._break(5, f"job {event.id} was rescued {since}")

    def _on_registered(self, event: Event) -> None:
        self._leases[event.pod] = (event.at, event.lease)

    _on_beat = _on_registered

    def _on_signed_off(self, event: Event) -> None:
        self._gone.add(event.pod)

    _on_died = _on_signed_off

    def _on_fault(self, event: Event) -> None:
        """For people only."""

    def _on_told(self, event: Event) -> None:
        self._told.add((event.id, event.token))

    def _on_fenced(self, event: Event) -> None:
        if event.id in self._fenced:
            self._break(7, f"job {event.id} has two effects that only one token may have")
        self._fenced[event.id] = event.token

    def _on_heard(self, event: Event) -> None:
        self._heard.setdefault(event.pod, []).append(event.at)

    def _on_effect(self, event: Event) -> None:
        self._effects.add((event.id, event.token))
        pod, lost_at = self._life(event.id).lost.get(event.token, ("", 0.0))
        told = next((at for at in self._heard.get(pod, ()) if at > lost_at), None)
        if told is not None and event.at - told > STOPPED_WITHIN:
            self._break(14, f"job {event.id} went on for {event.at - told:.0f} s after its pod heard that it was lost")

    def _on_fired(self, event: Event) -> None:
        fire = (event.schedule, event.fire_at)
        if fire in self._fires:
            self._break(10, f"schedule {event.schedule} fired twice for {event.fire_at}")
        self._fires.add(fire)

    # The end ---------------------------------------------------------------------------------------------------------

    def _finish(self, rows: Mapping[str, Job], converged: bool) -> None:
        for id, how in self._asked.items():
            row = rows.get(id)
            if how == "ok" and row is None:
                self._break(1, f"job {id} was enqueued, and is not there")
            if how == "fail" and row is not None:
                self._break(2, f"job {id} was refused, and is there")
        for id, row in rows.items():
            life = self._lives.get(id)
            if life is None or not life.inserted:
                self._break(2, f"job {id} is there, and nobody inserted it")
                continue
            if row.state in LIVE and converged:
                self._break(12, f"job {id} ({row.task}) is still {row.state} after everything was healed")
            if (life.ended or "") != (row.state if row.state in TERMINAL else ""):
                self._break(3, f"job {id} is {row.state}, and its history says {life.ended or 'alive'}")
            if row.attempt != life.charges:
                self._break(9, f"job {id} says attempt {row.attempt}, and {life.charges} claims were charged")
            is_told = not self._with_effects or (id, life.ended_token or "") in self._effects
            if row.state is State.SUCCEEDED and not is_told:
                self._break(6, f"job {id} has succeeded, and its task never returned under that token")
            if row.state is State.SUCCEEDED and self._fenced.get(id, life.ended_token) != life.ended_token:
                self._break(7, f"job {id} has succeeded, and its fenced effect is that of another token")
        for id, token in sorted(self._told - self._accepted):
            self._break(8, f"job {id}: its pod was told that {token} was accepted, and it was not")
        for id, life in self._lives.items():
            if life.inserted and id not in rows:
                self._break(13, f"job {id} was inserted, and is not there")
