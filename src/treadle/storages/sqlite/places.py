"""Where an index leads: the jobs of a state and a queue, as one piece of one index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from . import rows, terms
from .rows import Database
from .sql import statement
from .terms import Condition, Terms

MANY: Final = 100  # of more queues one piece serves all: a statement has at most 500 selects
_NAMED: Final = "json_each(?) as named cross join "


class Piece(Struct, frozen=True):
    """`named`: the first parameter is a list of queues as JSON, and the condition speaks of `named.value`."""

    index: str
    where: Condition
    named: bool = False

    @property
    def rows(self) -> str:
        """What follows `select …`."""
        return f"from {_NAMED if self.named else ''}treadle_job as job indexed by {self.index} where {self.where.sql}"


def source(db: Database, parts: Terms) -> Condition:
    """A statement for the row numbers of all jobs in the states and queues in question."""
    pieces = [piece for state in sorted(parts.states) for piece in of_state(db, state, parts)]
    return Condition(
        " union all ".join(f"select job.seq {piece.rows}" for piece in pieces) or "select null as seq where false",
        tuple(parameter for piece in pieces for parameter in piece.where.parameters),
    )


def of_state(db: Database, state: str, parts: Terms) -> list[Piece]:
    if state in ("waiting", "running"):
        return [Piece(f"treadle_job_{state}", Condition(f"job.state = '{state}'"))]
    if state == "scheduled" and "ready" in parts.states:
        return []  # one piece serves both
    names = queues(db, parts)
    if len(names) > MANY:
        piece = _of_queue(rows.json_text(names), state, parts)
        where = Condition(piece.where.sql.replace("job.queue = ?", "job.queue = named.value"), piece.where.parameters)
        return [Piece(piece.index, where, named=True)]
    return [_of_queue(queue, state, parts) for queue in names]


def _of_queue(queue: str, state: str, parts: Terms) -> Piece:
    given: tuple[Any, ...] = (queue,)
    if state in terms.ENDED:
        sql, given = "job.queue = ? and job.state = ? and job.finished_at is not null", (queue, state)
        index = "treadle_job_ended"
        if parts.poison:
            sql, given = "job.queue = ? and job.state = 'failed' and job.crashes > 0", (queue,)
            index = "treadle_job_poison"
        if parts.finished is not None:
            sql, given = f"{sql} and {parts.finished.sql}", (*given, *parts.finished.parameters)
        return Piece(index, Condition(sql, given))
    sql, index = "job.queue = ? and job.state = 'ready'", "treadle_job_claim"
    if parts.retrying:
        sql, index = f"{sql} and job.attempt > 0", "treadle_job_retrying"
    if parts.task is not None:
        sql, given = f"{sql} and job.task = ?", (queue, parts.task)
    return Piece(index, Condition(sql, given))


class Heads:
    """What lies ready, piece by piece of one task and priority. Found when first asked for, and then known."""

    def __init__(self, db: Database, parts: Terms, now: float) -> None:
        self._db = db
        self._parts = parts
        self._now = now
        self._found: list[tuple[str, str, int]] | None = None

    def pieces(self, state: str) -> list[Piece]:
        """Ready or scheduled jobs: of one task and priority, each of the two lies together."""
        due = "<=" if state == "ready" else ">"
        sql = f"job.state = 'ready' and job.queue = ? and job.task = ? and job.priority = ? and job.run_at {due} ?"
        if self._found is None:
            self._found = [head[:3] for head in heads(self._db, self._parts, self._now)]
        return [Piece("treadle_job_claim", Condition(sql, (*head, self._now))) for head in self._found]


def heads(db: Database, parts: Terms, after: float) -> Iterator[tuple[str, str, int, Any]]:
    """(queue, task, priority, first run_at after that) of what lies ready."""
    for queue in queues(db, parts):
        for task, priority, _, later in db.execute(statement("claim_heads"), (queue, after)).fetchall():
            if parts.task in (None, task) and _is_wanted(priority, parts):
                yield queue, task, priority, later


def heads_of_retries(db: Database, parts: Terms, after: float) -> Iterator[tuple[str, str, Any]]:
    """(queue, task, first run_at after that) of what waits for its retry."""
    for queue in queues(db, parts):
        for task, later in db.execute(statement("retry_heads"), (queue, after)).fetchall():
            if parts.task in (None, task):
                yield queue, task, later


def _is_wanted(priority: int, parts: Terms) -> bool:
    return parts.priorities is None or any(priority in each for each in parts.priorities)


def queues(db: Database, parts: Terms) -> tuple[str, ...]:
    if parts.queues is not None:
        return parts.queues
    return tuple(name for (name,) in db.execute("select name from treadle_queue order by name"))
