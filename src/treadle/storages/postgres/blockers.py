"""Blockers: the sessions that hold a lock which calls on our tables wait for.

Asked over a connection of its own, with a short deadline, and only after a call was not answered in time. The server is
asked for its list of locks and for nothing in our tables, so no lock on those is in the way. Every role may see locks,
process ids, users and program names; what a session of another user does, and since when, needs pg_read_all_stats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ...core.blocker import Blocker, Stops
from .talk import Talk

DEADLINE: Final = 2.0
MOST: Final = 10
OPEN_LONG: Final = 2.0  # a transaction that has written to our tables and is open for longer may hold the row

# Locks on our tables, but for those of mere readers.
_LOCKS: Final = """
select l.pid, c.relname, l.mode, l.granted, l.locktype, p.gid, date_part('epoch', clock_timestamp() - p.prepared)
from pg_locks as l
join pg_class as c on c.oid = l.relation
left join pg_prepared_xacts as p on l.pid is null and l.virtualtransaction = '-1/' || p.transaction::text
where
    c.relnamespace = to_regnamespace($1::text)::oid and c.relkind in ('r', 'p')
    and l.database = (select oid from pg_database where datname = current_database())
    and l.pid is distinct from pg_backend_pid() and not (l.granted and l.mode = 'AccessShareLock')
order by c.relname = 'job' desc, c.relname
limit 1000
"""
_WAITS: Final = """
select pid, pg_blocking_pids(pid) from (
    select distinct pid from pg_locks where not granted and pid <> pg_backend_pid() limit 100
) as waiting
"""
_SESSIONS: Final = """
select
    pid, coalesce(usename, ''), coalesce(application_name, ''), coalesce(state, backend_type, ''),
    date_part('epoch', clock_timestamp() - xact_start)
from pg_stat_activity
where pid = any ($1::int[])
"""
_STOPS_READS: Final = frozenset({"AccessExclusiveLock"})
_STOPS_WRITES: Final = frozenset({"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock"})
_WRITES: Final = frozenset({"RowShareLock", "RowExclusiveLock"})

_ORDER: Final[Sequence[Stops]] = ("reads", "writes", "rows")


class Lock(Struct, frozen=True):
    """A row of the server's list: a lock on one of our tables. A prepared transaction has a name and no pid."""

    pid: int | None
    table: str
    mode: str
    granted: bool
    kind: str
    prepared: str | None = None
    seconds: float | None = None


class Session(Struct, frozen=True):
    pid: int
    user: str = ""
    program: str = ""
    does: str = ""
    seconds: float | None = None


def blockers(schema: str) -> Talk[list[Blocker]]:
    locks = [Lock(*row) for row in (yield _LOCKS, (f'"{schema}"',))]
    waits = {pid: [*by] for pid, by in (yield _WAITS, ())}
    pids = {lock.pid for lock in locks if lock.pid is not None} | {pid for by in waits.values() for pid in by}
    sessions = {row[0]: Session(*row) for row in (yield _SESSIONS, ([*pids],))}
    return judge(schema, locks, waits, sessions)


def judge(
    schema: str, locks: Iterable[Lock], waits: Mapping[int, Sequence[int]], sessions: Mapping[int, Session]
) -> list[Blocker]:
    """Who is in the way, those first that stop most. Of a chain of waits its end is named: the session whose end lets
    all others go on."""
    found: dict[int, tuple[Stops, str]] = {}
    behind: dict[int, int] = {}
    writers: dict[int, str] = {}
    prepared: list[Blocker] = []

    def note(pid: int, stops: Stops, table: str) -> None:
        if pid not in found or _ORDER.index(stops) < _ORDER.index(found[pid][0]):
            found[pid] = (stops, table)

    for lock in locks:
        stops: Stops = "rows" if lock.kind == "tuple" or lock.mode in _WRITES else "writes"
        if lock.mode in _STOPS_READS or (lock.mode == "AccessShareLock" and not lock.granted):
            stops = "reads"
        if lock.pid is None:
            if lock.prepared is not None and (stops != "rows" or lock.mode in _WRITES):
                prepared.append(_prepared(schema, lock, stops))
        elif not lock.granted:
            for pid in _ends(lock.pid, waits):
                note(pid, "writes" if stops == "rows" and lock.kind == "relation" else stops, lock.table)
                if lock.mode in _STOPS_READS | _STOPS_WRITES:
                    behind[pid] = lock.pid
        elif lock.mode in _STOPS_READS | _STOPS_WRITES and lock.kind == "relation":
            note(lock.pid, stops, lock.table)
        elif lock.mode in _WRITES:
            writers.setdefault(lock.pid, lock.table)
    for pid, table in writers.items():  # those that wait for another transaction's row
        for end in _ends(pid, waits) if pid in waits else ():
            note(end, "rows", table)
    for pid, table in writers.items():  # and where none waits any more, those that may hold it
        if pid not in found and (sessions.get(pid, Session(pid)).seconds or 0.0) >= OPEN_LONG and pid not in waits:
            note(pid, "rows", table)
    named = [_named(schema, sessions.get(pid, Session(pid)), *found[pid], behind.get(pid)) for pid in found if pid]
    unique = {each.who: each for each in reversed(prepared)}
    named += unique.values()
    return sorted(named, key=lambda each: (_ORDER.index(each.stops), -(each.seconds or 0.0), each.who))[:MOST]


def _ends(pid: int, waits: Mapping[int, Sequence[int]]) -> set[int]:
    """The sessions at the ends of the chains of waits that begin here, and wait for nobody themselves."""
    seen, left, ends = {pid}, [*waits.get(pid, ())], set[int]()
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            if waits.get(each):
                left.extend(waits[each])
            else:
                ends.add(each)
    return ends


def _named(schema: str, session: Session, stops: Stops, table: str, behind: int | None) -> Blocker:
    waits = f"session {behind} waits for it" if behind not in (None, session.pid) else ""
    user = f"user {session.user}" if session.user else ""
    return Blocker(
        what=_what(schema, table, stops),
        who=f"session {session.pid}",
        details=tuple(each for each in (user, session.program, waits, session.does) if each),
        seconds=session.seconds,
        stops=stops,
        remedy=f"SELECT pg_terminate_backend({session.pid})",
    )


def _prepared(schema: str, lock: Lock, stops: Stops) -> Blocker:
    name = (lock.prepared or "").replace("'", "''")
    return Blocker(
        what=_what(schema, lock.table, stops),
        who=f"prepared transaction {lock.prepared}",
        seconds=lock.seconds,
        stops=stops,
        remedy=f"ROLLBACK PREPARED '{name}'",
    )


def _what(schema: str, table: str, stops: Stops) -> str:
    return f"{'a row of ' if stops == 'rows' else ''}table {schema}.{table}"
