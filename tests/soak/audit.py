"""What the database itself says happened: triggers write every move of every job and every beat of every pod, in the
transaction that makes it. No kill comes between a move and its line, and the lines of one job are in its true order.

`events` makes a history for the checker of them, and of what the other actors wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from treadle.core.job import TERMINAL
from treadle.testing.history import Event

SQLITE: Final = """
create table soak_fenced (id text primary key, token text);
create table soak_audit (
    n integer primary key, at real, op text, id text, was text, became text, old_token text, token text,
    old_finished text, finished text, old_attempt integer, attempt integer, old_crashes integer, crashes integer,
    pod text, key text, max_attempts integer, lease_until real, card text, tx integer
);
create trigger soak_insert after insert on treadle_job begin
    insert into soak_audit (at, op, id, became, token, attempt, crashes, key, max_attempts)
    values (
        (julianday('now') - 2440587.5) * 86400.0, 'job', new.id, new.state, new.token, new.attempt, new.crashes,
        new.unique_key, new.max_attempts
    );
end;
create trigger soak_update after update on treadle_job
when old.state is not new.state or old.token is not new.token begin
    insert into soak_audit (
        at, op, id, was, became, old_token, token, old_finished, finished, old_attempt, attempt, old_crashes, crashes,
        pod, key, max_attempts
    )
    values (
        (julianday('now') - 2440587.5) * 86400.0, 'job', new.id, old.state, new.state, old.token, new.token,
        old.finished_token, new.finished_token, old.attempt, new.attempt, old.crashes, new.crashes,
        new.pod, new.unique_key, new.max_attempts
    );
end;
create trigger soak_register after insert on treadle_pod begin
    insert into soak_audit (at, op, id, lease_until, card)
    values ((julianday('now') - 2440587.5) * 86400.0, 'registered', new.id, new.lease_until, new.card);
end;
create trigger soak_beat after update on treadle_pod when old.lease_until is not new.lease_until begin
    insert into soak_audit (at, op, id, lease_until)
    values ((julianday('now') - 2440587.5) * 86400.0, 'beat', new.id, new.lease_until);
end;
create trigger soak_sign_off after delete on treadle_pod begin
    insert into soak_audit (at, op, id) values ((julianday('now') - 2440587.5) * 86400.0, 'signed_off', old.id);
end;
"""

# A job that ends is deleted in one table and inserted in the other.
POSTGRES: Final = """
create table {schema}.soak_fenced (id text primary key, token text);
create table {schema}.soak_audit (
    n bigint generated always as identity primary key, at float8 default date_part('epoch', clock_timestamp()),
    op text, id text, was text, became text, old_token text, token text,
    old_finished text, finished text, old_attempt integer, attempt integer, old_crashes integer, crashes integer,
    pod text, key text, max_attempts integer, lease_until float8, card text, tx text default pg_current_xact_id()::text
);
create function {schema}.soak_job() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into {schema}.soak_audit (
            op, id, became, token, finished, attempt, crashes, pod, key, max_attempts
        )
        values (
            tg_argv[0] || '+', new.id, new.state, new.token, new.finished_token, new.attempt, new.crashes, new.pod,
            new.unique_key, new.max_attempts
        );
    elsif tg_op = 'DELETE' then
        insert into {schema}.soak_audit (op, id, was, old_token, old_finished, old_attempt, old_crashes)
        values (tg_argv[0] || '-', old.id, old.state, old.token, old.finished_token, old.attempt, old.crashes);
    elsif old.state is distinct from new.state or old.token is distinct from new.token then
        insert into {schema}.soak_audit (
            op, id, was, became, old_token, token, old_finished, finished, old_attempt, attempt, old_crashes, crashes,
            pod, key, max_attempts
        )
        values (
            'job', new.id, old.state, new.state, old.token, new.token, old.finished_token, new.finished_token,
            old.attempt, new.attempt, old.crashes, new.crashes, new.pod, new.unique_key, new.max_attempts
        );
    end if;
    return null;
end
$$;
create function {schema}.soak_pod() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into {schema}.soak_audit (op, id, lease_until, card)
        values ('registered', new.id, date_part('epoch', new.lease_until), new.card);
    elsif new.gone and not old.gone then
        insert into {schema}.soak_audit (op, id) values ('signed_off', new.id);
    elsif old.lease_until is distinct from new.lease_until then
        insert into {schema}.soak_audit (op, id, lease_until)
        values ('beat', new.id, date_part('epoch', new.lease_until));
    end if;
    return null;
end
$$;
create trigger soak_live after insert or update or delete on {schema}.job
for each row execute function {schema}.soak_job('live');
create trigger soak_ended after insert or update or delete on {schema}.job_history
for each row execute function {schema}.soak_job('ended');
create trigger soak_pod after insert or update on {schema}.pod for each row execute function {schema}.soak_pod();
"""

Row = dict[str, Any]
# Two clocks of one host are read one after the other, and SQLite's counts milliseconds.
BLINK: Final = 0.02
CALM: Final = 6.0  # so long may a fault be felt


def moves(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """What became of jobs and pods, where a storage keeps ended jobs in another table too: there a job that ends is
    deleted and inserted in one transaction, and an enqueue that is repeated after its job's end inserts and deletes."""
    found: list[Row | None] = []
    left: dict[tuple[str, Any], Row] = {}
    new: dict[tuple[str, Any], int] = {}
    for given in rows:
        row = dict(given)
        at = (row["id"], row["tx"])
        if row["op"] in ("live-", "ended-"):
            if (unseen := new.pop(at, None)) is not None:
                found[unseen] = None
            else:
                left[at] = row
            continue
        if row["op"] in ("live+", "ended+"):
            before = left.pop(at, None)
            if before is not None:
                kept = ("was", "old_token", "old_finished", "old_attempt", "old_crashes")
                row |= {name: before[name] for name in kept}
            else:
                new[at] = len(found)
            row["op"] = "job"
        found.append(row)
    if left:
        found += [{**row, "op": "removed"} for row in left.values()]
    return [row for row in found if row is not None]


def events(
    rows: Sequence[Row], others: Sequence[Event], deaths: Sequence[tuple[int, float]], *, lease: float, offset: float
) -> list[Event]:
    """One history. `others` is what clients and tasks wrote; `deaths` are pids and when they were last seen alive;
    `offset` is what makes wall-clock time of the clock that leases are counted by."""
    pods_of: dict[int, list[str]] = {}
    for row in rows:
        if row["op"] == "registered":
            pods_of.setdefault(msgspec.json.decode(row["card"])["pid"], []).append(row["id"])
    died = [Event(kind="died", at=at, pod=pod) for pid, at in deaths for pod in pods_of.get(pid, ())]
    rest = sorted([*others, *died], key=lambda event: event.at - BLINK)
    merged: list[Event] = []
    reached = 0.0
    for row in rows:
        event = _event(row, lease, offset)
        if event is None:
            continue
        reached = max(reached, row["at"])
        while rest and rest[0].at - BLINK <= reached:
            merged.append(rest.pop(0))
        merged.append(event)
    return merged + rest


def _event(row: Row, lease: float, offset: float) -> Event | None:
    at: float = row["at"]
    match row["op"]:
        case "registered" | "beat" as kind:
            return Event(kind=kind, at=row["lease_until"] + offset - lease, pod=row["id"], lease=lease - BLINK)
        case "signed_off":
            return Event(kind="signed_off", at=at, pod=row["id"])
        case "removed":
            return None  # the checker will miss it
        case _:
            return _job_event(row, at)


def _job_event(row: Row, at: float) -> Event:
    id, was, became = row["id"], row["was"], row["became"]
    if was is None:
        return Event(kind="inserted", at=at, id=id, key=row["key"], max_attempts=row["max_attempts"])
    if became == "running":
        return Event(kind="claimed", at=at, id=id, token=row["token"] or "", pod=row["pod"] or "")
    if was in TERMINAL and became not in TERMINAL:
        return Event(kind="applied", at=at, id=id, why="revived", to=became)
    if was != "running":
        return Event(kind="applied", at=at, id=id, why=became, to=became)
    # Whoever ends its own run leaves its token; a rescuer speaks for the token that it found.
    by_itself = row["finished"] != row["old_finished"]
    token = row["finished"] if by_itself else row["old_token"]
    rescue = row["crashes"] > row["old_crashes"] and not by_itself  # its own pod counts the crash of a child
    charged = row["attempt"] >= row["old_attempt"]
    why = "rescued" if rescue else became if became in TERMINAL else "retried" if charged else "released"
    return Event(kind="applied", at=at, id=id, token=token or "", why=why, to=became, rescue=rescue, charged=charged)


class Recovery(NamedTuple):
    """Of one job that a dead process left running, in seconds from its death."""

    claimable: float
    claimed: float


def recoveries(history: Sequence[Event], *, apart_from: Sequence[float] = ()) -> list[Recovery]:
    """Those are left out that had to wait through one of the other faults, given by when they happened."""
    died: dict[str, float] = {}
    held: dict[str, Event] = {}
    waiting: dict[str, tuple[float, float]] = {}
    found: list[Recovery] = []
    for event in history:
        match event.kind:
            case "died":
                died[event.pod] = event.at
            case "claimed":
                since, rescued = waiting.pop(event.id, (None, 0.0))
                if since is not None and not any(since - CALM < at < event.at for at in apart_from):
                    found.append(Recovery(rescued - since, event.at - since))
                held[event.id] = event
            case "applied":
                claim = held.pop(event.id, None)
                if event.rescue and claim is not None and claim.pod in died:
                    # A claim may have been committed when its process was dead already.
                    waiting[event.id] = (max(died[claim.pod], claim.at), event.at)
                if event.to in TERMINAL:
                    waiting.pop(event.id, None)
            case _:
                pass
    return found
