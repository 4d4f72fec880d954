"""What runs report: progress, checkpoints, and the lines of logs. Only a checkpoint waits for the disk.

The fence is part of the statement that writes. For progress that is enough: a word that overtakes a rescue by a moment
is replaced by the next one. For a checkpoint it is not, since the next attempt goes on from it: so the job's row is
locked against whoever would take the claim away, until what was written under it is committed.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from ...core.logline import MOST_BYTES, MOST_LINES, LogLine
from ...core.progress import Checkpoint, Progress, Report, Reported
from ...core.rollup import readable
from . import rows, sql
from .talk import BEGIN, COMMIT, Ask, Talk

if TYPE_CHECKING:
    from .desk import Desks

_Claim: TypeAlias = tuple[str, str]  # job, token

_encode: Final = msgspec.json.Encoder().encode
_as_progress: Final = msgspec.json.Decoder(Progress).decode
_RELAXED: Final[Ask] = ("select set_config('synchronous_commit', 'off', true)", ())
# Its claim holds, or its own finish was the last that was heard of the job.
_SPEAKS: Final = """
(exists (
    select from treadle.job as j
    where j.id = r.id and j.token = r.token and (j.state = 'running' or j.finished_token = r.token)
) or exists (
    select from treadle.job_history as h
    where h.id = r.id and h.token = r.token and h.finished_token = r.token
))
"""
_PROGRESS: Final = f"""
with own as (
    select r.id::text as id, r.token, r.attempt, r.entry
    from unnest($2::uuid[], $3::text[], $4::int[], $5::text[]) as r (id, token, attempt, entry)
    where {_SPEAKS}
), written as (
    insert into treadle.job_progress (job_id, attempt, at, entry)
    select id, attempt, date_part('epoch', {sql.CLOCK}), entry from own order by id
    on conflict (job_id) do update set attempt = excluded.attempt, at = excluded.at, entry = excluded.entry
)
select id, token from own
"""
_OVER: Final = f"""
select r.id::text, r.token from unnest($1::uuid[], $2::text[]) as r (id, token) where {_SPEAKS}
"""
_HOLD: Final = """
select id::text, token from treadle.job
where id = any ($1::uuid[]) and token = any ($2::text[]) and state = 'running'
order by id
for share
"""
_CHECKPOINT: Final = f"""
insert into treadle.job_checkpoint (job_id, attempt, at, value)
select r.id, r.attempt, date_part('epoch', {sql.CLOCK}), r.value
from unnest($2::text[], $3::int[], $4::text[]) as r (id, attempt, value)
on conflict (job_id) do update set attempt = excluded.attempt, at = excluded.at, value = excluded.value
"""
_LINES: Final = """
insert into treadle.job_log (job_id, n, attempt, level, text)
select l.id::text, l.n, l.attempt, l.level, l.text
from unnest($1::uuid[], $2::bigint[], $3::int[], $4::text[], $5::text[]) as l (id, n, attempt, level, text)
where
    exists (select from treadle.job as j where j.id = l.id)
    or exists (select from treadle.job_history as h where h.id = l.id)
on conflict do nothing
"""
_TRIM: Final = f"""
delete from treadle.job_log as log
using (
    select
        l.job_id,
        l.n,
        row_number() over newest as place,
        sum(octet_length(l.text) + 16) over newest as bytes
    from unnest($1::text[], $2::int[]) as t (job_id, attempt)
    join treadle.job_log as l on l.job_id = t.job_id and l.attempt = t.attempt
    window newest as (partition by l.job_id, l.attempt order by l.n desc)
) as old
where log.job_id = old.job_id and log.n = old.n and (old.place > {MOST_LINES} or old.bytes > {MOST_BYTES})
"""
_SUCCEEDED: Final = (
    "exists (select from treadle.job_history as h where h.id = s.job_id::uuid and h.state = 'succeeded')"
)
READ_PROGRESS: Final = (
    "select s.job_id, s.attempt, s.at, s.entry from treadle.job_progress as s "
    f"where s.job_id = any ($1::text[]) and not {_SUCCEEDED}"
)


class PostgresProgress:
    """The verbs, as part of the storage."""

    _desks: Desks
    _now: Callable[[], float | None]
    _read: Callable[..., Coroutine[Any, Any, Any]]

    async def report(self, reports: Sequence[Report]) -> Sequence[bool]:
        now = self._now()
        return await self._desks.mine().slow.run(lambda: report(reports, now)) if reports else []

    async def progress(self, job_ids: Sequence[str]) -> Sequence[Reported]:
        known = [id for id in job_ids if rows.is_id(id)]
        found: list[Reported] = await self._read(lambda: progress(known)) if known else []
        return found

    async def checkpoint(self, job_id: str) -> Checkpoint | None:
        found: Checkpoint | None = await self._read(lambda: checkpoint(job_id)) if rows.is_id(job_id) else None
        return found

    async def record_logs(self, lines: Sequence[LogLine]) -> None:
        if lines:
            await self._desks.mine().slow.run(lambda: record_logs(lines))

    async def logs(self, job_id: str, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        found: list[LogLine] = await self._read(lambda: logs(job_id, after, limit)) if rows.is_id(job_id) else []
        return found


def report(reports: Sequence[Report], now: float | None) -> Talk[list[bool]]:
    known = [each for each in reports if rows.is_id(each.id)]
    said = {_claim(each): each for each in known if each.progress is not None and each.checkpoint is None}
    points = {_claim(each): each for each in known if each.checkpoint is not None}
    over = {_claim(each): each for each in known if each.over}
    yield BEGIN
    if not points:
        yield _RELAXED
    held: set[_Claim] = set()
    if points:
        held = yield from _check_in(points, now)
        said |= {claim: points[claim] for claim in held if points[claim].progress is not None}
    spoke = yield from _say(said, now)
    ended = yield from _let_go(over)
    yield COMMIT
    return [_is_taken(each, held, spoke, ended) for each in reports]


def _claim(report: Report) -> _Claim:
    return report.id.lower(), report.token


def _is_taken(report: Report, held: set[_Claim], spoke: set[_Claim], ended: set[_Claim]) -> bool:
    claim = _claim(report)
    if report.checkpoint is not None:
        return claim in held
    return claim in (ended if report.over else spoke)


def _say(said: dict[_Claim, Report], now: float | None) -> Talk[set[_Claim]]:
    if not said:
        return set()
    found = yield (
        _PROGRESS,
        (
            now,
            [id for id, _ in said],
            [token for _, token in said],
            [each.attempt for each in said.values()],
            [_encode(each.progress).decode() for each in said.values()],
        ),
    )
    return {(id, token) for id, token in found}


def _check_in(points: dict[_Claim, Report], now: float | None) -> Talk[set[_Claim]]:
    found = yield _HOLD, ([id for id, _ in points], [token for _, token in points])
    held = [(id, token) for id, token in found if (id, token) in points]
    if held:
        own = [points[claim] for claim in held]
        ids = [id for id, _ in held]
        yield _CHECKPOINT, (now, ids, [each.attempt for each in own], [each.checkpoint for each in own])
    return set(held)


def _let_go(over: dict[_Claim, Report]) -> Talk[set[_Claim]]:
    if not over:
        return set()
    found = yield _OVER, ([id for id, _ in over], [token for _, token in over])
    if found:
        yield from forget_reports([id for id, _ in found])
    return {(id, token) for id, token in found}


def progress(job_ids: Sequence[str]) -> Talk[list[Reported]]:
    found = yield READ_PROGRESS, ([id.lower() for id in job_ids],)
    return readable(_reported, found)


def _reported(row: Any) -> Reported:
    return Reported(id=row[0], attempt=row[1], at=row[2], progress=_as_progress(row[3]))


def checkpoint(job_id: str) -> Talk[Checkpoint | None]:
    found = yield (
        "select s.attempt, s.at, s.value from treadle.job_checkpoint as s "
        f"where s.job_id = $1::text and not {_SUCCEEDED}",
        (job_id.lower(),),
    )
    return Checkpoint(attempt=found[0][0], at=found[0][1], value=found[0][2]) if found else None


def record_logs(lines: Sequence[LogLine]) -> Talk[None]:
    known = [line for line in lines if rows.is_id(line.job_id)]
    touched = sorted({(line.job_id.lower(), line.attempt) for line in known})
    yield BEGIN
    yield _RELAXED
    yield (
        _LINES,
        (
            [line.job_id for line in known],
            [line.n for line in known],
            [line.attempt for line in known],
            [line.level for line in known],
            [line.text for line in known],
        ),
    )
    yield _TRIM, ([id for id, _ in touched], [attempt for _, attempt in touched])
    yield COMMIT


def logs(job_id: str, after: int, limit: int) -> Talk[list[LogLine]]:
    found = yield (
        "select n, attempt, level, text from treadle.job_log where job_id = $1::text and n > $2::bigint "
        "order by n desc limit $3::int",
        (job_id.lower(), after, limit),
    )
    return [LogLine(job_id, *row) for row in reversed(found)]


def forget_reports(job_ids: Sequence[str]) -> Talk[None]:
    """What these jobs' runs have left is worth nothing to them any more."""
    yield (
        "with said as (delete from treadle.job_progress where job_id = any ($1::text[])) "
        "delete from treadle.job_checkpoint where job_id = any ($1::text[])",
        (list(job_ids),),
    )


def forget(job_ids: Sequence[str]) -> Talk[None]:
    """The rows of these jobs go: all that they said goes with them."""
    yield (
        "with said as (delete from treadle.job_progress where job_id = any ($1::text[])), "
        "points as (delete from treadle.job_checkpoint where job_id = any ($1::text[])) "
        "delete from treadle.job_log where job_id = any ($1::text[])",
        (list(job_ids),),
    )
