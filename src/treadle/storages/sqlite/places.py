"""Where an index leads: the jobs of a state and a queue, as one piece of one index."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from . import terms
from .rows import Database
from .terms import Condition, Terms


class Piece(Struct, frozen=True):
    index: str
    where: Condition

    @property
    def rows(self) -> str:
        """What follows `select …`."""
        return f"from treadle_job as job indexed by {self.index} where {self.where.sql}"


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
    return [_of_queue(queue, state, parts) for queue in queues(db, parts)]


def _of_queue(queue: str, state: str, parts: Terms) -> Piece:
    given: tuple[Any, ...] = (queue,)
    if state in terms.ENDED:
        sql, given = "job.queue = ? and job.state = ? and job.finished_at is not null", (queue, state)
        if parts.finished is not None:
            sql, given = f"{sql} and {parts.finished.sql}", (*given, *parts.finished.parameters)
        return Piece("treadle_job_ended", Condition(sql, given))
    sql, index = "job.queue = ? and job.state = 'ready'", "treadle_job_claim"
    if parts.retrying:
        sql, index = f"{sql} and job.attempt > 0", "treadle_job_retrying"
    if parts.task is not None:
        sql, given = f"{sql} and job.task = ?", (queue, parts.task)
    return Piece(index, Condition(sql, given))


def queues(db: Database, parts: Terms) -> tuple[str, ...]:
    if parts.queues is not None:
        return parts.queues
    return tuple(name for (name,) in db.execute("select name from treadle_queue order by name"))
