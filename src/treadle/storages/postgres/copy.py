"""Copy: whole rows, on their way from or to another storage. How a new table joins is told at `Storage.kinds`.

Rows travel as JSON with the types that the catalogue gives their columns, so nothing here knows the columns by name,
but for what a job has in other tables: its errors, its lane, and the choice between job and job_history.
"""

# ruff: noqa: S608 - the SQL is put together from the names of our own tables and columns

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from ...core import record as records
from ...core.errors import StorageDenied, StorageTimeout
from ...core.job import ErrorEntry
from ...core.queue import Queue
from ...core.record import Record
from ...ports import Dumped, Loaded
from . import change, insert, migrations, rows, sql, tables
from .roles import Sight
from .tables import MOVE_ON, Table, quoted
from .talk import BEGIN, COMMIT, BadValue, Row, Talk

T = TypeVar("T")

APART: Final = frozenset(
    {
        "job_history",  # travel as jobs, or with them
        "job_error",
        "lane",  # made anew of the jobs
        "run",  # are of this place alone
        "pod",
        "share",
        "leader",
        "named_lock",
    }
)
_FIRST: Final = ("queue", "job")
_NAMES: Final = {"limit": "rate_limit"}  # kinds that may not be called so here
_LIVE: Final = frozenset({"waiting", "ready", "running"})
_ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
_QUEUES: Final = f"select {sql.QUEUE} from treadle.queue"
_LAST_FENCE: Final = "coalesce(pg_sequence_last_value('treadle.lock_fence'::regclass), 0)"
_KNOWN: Final = (
    "select id::text from treadle.job where id = any ($1::text[]::uuid[]) "
    "union all select id::text from treadle.job_history where id = any ($1::text[]::uuid[])"
)
_BAD: Final = (msgspec.ValidationError, KeyError, TypeError)
_as_entries: Final = msgspec.json.Decoder(tuple[tuple[float, str], ...]).decode
_ERRORS: Final = (
    "insert into treadle.job_error (job_id, n, ended_at, entry) "
    "select r.job_id, r.n, to_timestamp(r.ended_at), r.entry "
    "from json_to_recordset($1::text::json) as r (job_id uuid, n int, ended_at float8, entry text) "
    "on conflict do nothing"
)


class Copying:
    """The verbs. `_sight`, `_read` and `_slowly` are the storage's own."""

    _sight: Sight

    def kinds(self) -> Sequence[str]:
        return kinds()

    async def dump(self, kind: str, cursor: str | None = None, limit: int = 500) -> Dumped:
        if self._sight != "all":
            raise StorageDenied("this login may not read what jobs carry: a copy would be without it")
        return await self._read(lambda: dump(kind, cursor, limit))

    async def load(self, kind: str, records: Sequence[Record]) -> Sequence[Loaded]:
        try:
            return await self._slowly(lambda: load(kind, records))
        except (BadValue, *_BAD) as error:
            if len(records) == 1:
                return [Loaded("refused", f"{type(error).__name__}: {error}")]
        half = len(records) // 2  # one of them is bad: the others are not to suffer for it
        return [*await self.load(kind, records[:half]), *await self.load(kind, records[half:])]

    async def _read(self, make: Callable[[], Talk[T]]) -> T:
        raise NotImplementedError

    async def _slowly(self, make: Callable[[], Talk[T]]) -> T:
        raise NotImplementedError


@functools.cache
def kinds() -> tuple[str, ...]:
    made = {name for migration in migrations.known() for name in tables_of(migration.text)}
    others = made - APART - set(_FIRST) - set(_NAMES.values())
    return (*_FIRST, *sorted({*others, *_NAMES, "fence"}))


def tables_of(text: str) -> list[str]:
    """The tables that a migration makes."""
    return re.findall(r"^create table (?:if not exists )?treadle\.(\w+)", text, re.MULTILINE)


def _of(kind: str) -> Talk[Table]:
    if kind not in (*kinds(), "job_history"):
        raise ValueError(f'there is no kind "{kind}"; there are {", ".join(kinds())}')
    return (yield from tables.described(f"treadle.{_NAMES.get(kind, kind)}"))


# ---------------------------------------------------------------------------------------------------------------------
# Out


def dump(kind: str, cursor: str | None, limit: int) -> Talk[Dumped]:
    if kind == "job":
        return (yield from _dump_jobs(cursor, limit))
    if kind == "queue":
        return (yield from _dump_queues(cursor, limit))
    if kind == "fence":
        return (yield from _dump_fence())
    table = yield from _of(kind)
    keys = table.keys
    order = ", ".join(f"job.{quoted(key)}" for key in keys)
    after: list[str] = json.loads(cursor) if cursor is not None else []
    places = ", ".join(f"${n}::text::{key.type}" for n, key in enumerate(keys, 2))
    where = f"where ({order}) > ({places})" if after else ""
    names = [f"job.{quoted(key)}::text" for key in keys]
    found = yield table.select(f"{where} order by {order} limit $1::int", *names), (limit, *after)
    following = json.dumps(list(found[-1][-len(keys) :])) if len(found) == limit else None
    return Dumped([table.record(row) for row in found], following)


def _dump_queues(cursor: str | None, limit: int) -> Talk[Dumped]:
    """A queue travels as the Queue: how its settings lie in columns is each storage's own affair."""
    found = yield f"{_QUEUES} where name > $2::text order by name limit $1::int", (limit, cursor or "")
    queues = [rows.queue_of(row) for row in found]
    return Dumped([msgspec.to_builtins(queue) for queue in queues], queues[-1].name if len(found) == limit else None)


def _dump_fence() -> Talk[Dumped]:
    found = yield f"select {_LAST_FENCE}", ()
    return Dumped([{"one": 1, "last": found[0][0]}])


def _dump_jobs(cursor: str | None, limit: int) -> Talk[Dumped]:
    """First the live, then the ended. By id: no index has the order of insertion, which the records know themselves."""
    kind, _, after = (cursor or "job:").partition(":")
    table = yield from _of(kind)
    where = "where job.id > $2::text::uuid" if after else "where $2::text = ''"
    found = yield table.select(f"{where} order by job.id limit $1::int", sql.ALL_ERRORS), (limit, after)
    jobs = [_job_record(table, row) for row in found]
    following = f"{kind}:{jobs[-1]['id']}" if len(jobs) == limit else "job_history:" if kind == "job" else None
    return Dumped(jobs, following)


def _job_record(table: Table, row: Row) -> Record:
    job = table.record(row)
    errors = rows.entries_of(_as_entries(row[-1])) if row[-1] else ()
    return {**job, "errors": msgspec.to_builtins(errors)}


# ---------------------------------------------------------------------------------------------------------------------
# In


def load(kind: str, records: Sequence[Record]) -> Talk[list[Loaded]]:
    if not records:
        return []
    yield BEGIN
    if kind == "job":
        answers = yield from _load_jobs(records)
    elif kind == "queue":
        answers = yield from _load_queues(records)
    elif kind == "fence":
        answers = yield from _load_fence(records)
    else:
        answers = yield from _load_rows(kind, records)
    yield COMMIT
    return answers


def _load_queues(records: Sequence[Record]) -> Talk[list[Loaded]]:
    answers: list[Loaded] = []
    for record in records:
        queue = msgspec.convert(record, Queue)
        made = yield (
            "insert into treadle.queue (name) values ($1::text) on conflict do nothing returning 1",
            (queue.name,),
        )
        found = yield f"{_QUEUES} where name = $1::text for update", (queue.name,)
        there = rows.queue_of(found[0])
        compared = _compared(msgspec.to_builtins(there), record)
        if not made and (compared.outcome == "same" or there.version != 0):
            answers.append(compared)
            continue
        yield from change.save_queue(queue)
        answers.append(Loaded("written"))
    return answers


def _load_fence(records: Sequence[Record]) -> Talk[list[Loaded]]:
    """It only rises: no lock may ever be given a fence that was given before."""
    last = max(record["last"] for record in records)
    raised = yield (
        f"select setval('treadle.lock_fence', $1::bigint) where {_LAST_FENCE} < $1::bigint",
        (last,),
    )
    return [Loaded("written" if raised else "same")] * len(records)


def _load_rows(kind: str, records: Sequence[Record]) -> Talk[list[Loaded]]:
    table = yield from _of(kind)
    there = yield from _find(table, records)
    missing = [n for n in range(len(records)) if n not in there]
    yield from _insert(table, [records[n] for n in missing])
    now_there = yield from _find(table, [records[n] for n in missing])
    written = {missing[n] for n in now_there}
    return [
        _compared(there[n], record)
        if n in there
        else Loaded("written")
        if n in written
        else Loaded("refused", "its place is taken")
        for n, record in enumerate(records)
    ]


def _find(table: Table, records: Sequence[Record]) -> Talk[dict[int, Record]]:
    """The rows that have these records' keys, by the record's number."""
    if not records:
        return {}
    keys = table.keys
    types = ", ".join(f"{quoted(key)} {key.carried}" for key in keys)
    same = " and ".join(f"job.{quoted(key)} = {key.back}" for key in keys)
    named = [{**{key.name: record[key.name] for key in keys}, "number": n} for n, record in enumerate(records)]
    found = yield (
        table.select(f"join json_to_recordset($1::text::json) as r ({types}, number int) on {same}", "r.number"),
        (_json(named),),
    )
    return {row[-1]: table.record(row) for row in found}


def _insert(table: Table, records: Sequence[Record]) -> Talk[None]:
    """Write rows, those with the same columns together; a column that a record does not have gets its default. What is
    taken is left as it is."""
    names = {column.name for column in table.columns}
    groups: dict[frozenset[str], list[Record]] = {}
    for record in records:
        given = frozenset(names & record.keys())
        groups.setdefault(given, []).append({name: record[name] for name in given})
    for given, alike in groups.items():
        yield table.insert(given), (_json(alike),)
        for column in table.columns:
            if column.counted and column.name in given:
                highest = max(record[column.name] for record in alike)
                yield MOVE_ON.replace("{table}", table.name), (column.name, highest)


def _load_jobs(records: Sequence[Record]) -> Talk[list[Loaded]]:
    ids = [record["id"] for record in records]
    there = yield from _find_jobs(ids)
    missing = [record for record in records if record["id"] not in there]
    answers: dict[str, Loaded] = {id: Loaded("same") for id in ids}
    strange = [record for record in missing if record["state"] not in _LIVE | _ENDED]
    live = [record for record in missing if record["state"] in _LIVE]
    ended = [_with_cause(record) for record in missing if record["state"] in _ENDED]
    yield from _insert((yield from _of("job")), [_without_nothing(record) for record in live])
    yield from _insert((yield from _of("job_history")), [_without_nothing(record) for record in ended])
    written = yield _KNOWN, ([record["id"] for record in missing],)
    known = {row[0] for row in written}
    entries = [entry for record in missing if record["id"] in known for entry in _entries(record)]
    if entries:
        yield _ERRORS, (_json(entries),)
    lanes = {(record["queue"], record["priority"]) for record in live}
    if lanes and not (yield from insert.ensure(lanes)):
        raise StorageTimeout("another open transaction holds a queue that these jobs need")
    for record in missing:
        answers[record["id"]] = Loaded("written")
        if record["id"] not in known:
            answers[record["id"]] = Loaded("refused", f"another job holds its unique key {record.get('unique_key')}")
    for record in strange:
        answers[record["id"]] = Loaded("refused", f"there is no state {record['state']!r}")
    return [_compared(there[each["id"]], each) if each["id"] in there else answers[each["id"]] for each in records]


def _find_jobs(ids: Sequence[str]) -> Talk[dict[str, Record]]:
    found: dict[str, Record] = {}
    for kind in ("job", "job_history"):
        table = yield from _of(kind)
        read = yield table.select("where job.id = any ($1::text[]::uuid[])", sql.ALL_ERRORS), (list(ids),)
        found |= {job["id"]: job for job in (_job_record(table, row) for row in read)}
    return found


def _without_nothing(record: Record) -> Record:
    """An empty array is kept as none at all."""
    return record if record.get("tags") else {**record, "tags": None}


def _with_cause(record: Record) -> Record:
    if record["state"] != "failed" or record.get("cause") is not None or not record.get("errors"):
        return record
    last = msgspec.convert(record["errors"][-1], ErrorEntry)
    return {**record, "cause": f"{record['task']}:{last.type}:{last.place}"}


def _entries(record: Record) -> list[Record]:
    errors = [msgspec.convert(entry, ErrorEntry) for entry in record.get("errors") or ()]
    return [
        {
            "job_id": record["id"],
            "n": n,
            "ended_at": entry.ended_at or record["created_at"],
            "entry": rows.entry_text(entry),
        }
        for n, entry in enumerate(errors, record["error_count"] - len(errors) + 1)
    ]


def _compared(there: Record, record: Record) -> Loaded:
    differing = records.differing(there, record)
    return Loaded("differs", ", ".join(differing)) if differing else Loaded("same")


def _json(value: object) -> str:
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    """JSON has no infinity, but its text is one to the server."""
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(each) for each in cast("Sequence[Any]", value)]
    return value
