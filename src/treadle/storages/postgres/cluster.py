"""The cluster: pods, their leases, the leader, and the jobs that a pod has left behind.

No index leads to running jobs. Whether a pod left any behind is seen by reading the whole table of live jobs, so it is
read only when there is a reason: a pod whose lease is over and that nobody has looked after yet (for half a minute
longer than its last claim can still be under way), a table so small that reading it costs nothing, and every ten
minutes all the same.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from ...core.pod import Held, Pod, PodCard, PodStats
from ...ports import Abandoned, Beaten, RunReport
from ..shared.nearest import within
from . import bounds, catalog, deploys, insert, rows, sql
from .talk import BEGIN, COMMIT, Talk

# now, steady, boot; None: the server's clock.
Time: TypeAlias = tuple[float | None, float | None, str]

FORGET_AFTER: Final = 3600.0
"""So long is the row of a lost or lapsed pod kept for people to see."""
SMALL_FOR_BEATS: Final = 8 << 20
SMALL_FOR_SCANS: Final = 64 << 20
STILL_UNDER_WAY: Final = 30.0
MOST_TERMS: Final = 1 << 61  # what is beyond was written by somebody else, and could not be counted further

BEAT: Final = sql.call(
    "beat_pod_1",
    "float8, float8, text, text, float8, boolean, text[], text[], text[], text[], bigint, text, text",
)
QUEUES: Final = f"select {sql.QUEUE} from treadle.queue order by name"
STEADY: Final = "coalesce(to_timestamp($2::float8), clock_timestamp())"
LIVE: Final = f"(not lost and not gone and boot = $3::text and lease_until > {STEADY})"
_REGISTER: Final = f"""
insert into treadle.pod (id, card, started_at, beat_at, lease_until, boot)
values ($4::text, $5::text, {sql.CLOCK}, {sql.CLOCK}, {STEADY} + $6::float8 * interval '1 second', $3::text)
on conflict (id) do update
set
    card = excluded.card, started_at = excluded.started_at, beat_at = excluded.beat_at,
    lease_until = excluded.lease_until, boot = excluded.boot, lost = false, gone = false, swept = false,
    stats = null, wish = 'serve', wish_by = null, stacks = null, stacks_at = null, stacks_asked = null
"""
# A row that another candidate is writing is passed over, not waited for: finishes go the same way.
_LEAD: Final = f"""
update treadle.leader
set
    term = case when term between 0 and {MOST_TERMS} then term + (holder <> $4::text)::int else 1 end,
    holder = $4::text, boot = $3::text, until = {STEADY} + $5::float8 * interval '1 second'
where one = (
    select one from treadle.leader
    where
        (holder in ('', $4::text) or until <= {STEADY} or boot <> $3::text)
        and exists (select from treadle.pod where id = $4::text and {LIVE})
        and ($1::float8 is null or true)
    for update skip locked
)
returning term
"""
# Not subtracted as instants: one that is infinite, in a row that somebody damaged, would end the statement.
_LEFT: Final = f"least(greatest(date_part('epoch', lease_until) - date_part('epoch', {STEADY}), -1e11), 1e11)"
_DROP_SHARES: Final = "delete from treadle.share where pod = $1::text"
_PODS: Final = f"""
select
    id, card, date_part('epoch', started_at), date_part('epoch', beat_at),
    case when boot = $3::text then {_LEFT} else 0 end, lost,
    exists (
        select from treadle.leader as l
        where l.holder = pod.id and l.until > {STEADY} and l.boot = $3::text
    ),
    case
        when pg_relation_size('treadle.job') < {SMALL_FOR_SCANS}
        then (select count(*) from treadle.job as j where j.state = 'running' and j.pod = pod.id)
        else (select count(*) from treadle.run as r where r.pod = pod.id)
    end,
    stats, wish, wish_by, stacks, date_part('epoch', stacks_at), date_part('epoch', stacks_asked),
    (select json_object_agg(s.queue, s.share order by s.queue)::text from treadle.share as s where s.pod = pod.id)
from treadle.pod as pod
where not gone and ($1::float8 is null or true)
order by n
"""
# Pods that may have left jobs behind.
_SUSPECTS: Final = f"""
select
    id, card, gone, lease_until < {STEADY} - $4::float8 * interval '1 second' or boot <> $3::text or lost or gone,
    pg_relation_size('treadle.job') < {SMALL_FOR_SCANS}
from treadle.pod
where not {LIVE} and not swept and ($1::float8 is null or true)
"""
# Whoever writes a pod's row for it puts right what is beyond its bounds, or the constraint would refuse that.
_SWEPT: Final = f"update treadle.pod as job set swept = true, {bounds.mended('pod')} where id = any ($1::text[])"
_MEND: Final = f"""
update treadle.pod as job
set {bounds.mended("pod")}
where id = $1::text and {bounds.is_broken("pod")}
returning 1
"""
_ABANDONED: Final = sql.statement("abandoned", sql.ALL_ERRORS)
_OVERDUE: Final = sql.statement("overdue", sql.ALL_ERRORS)


class _Answer(Struct):
    now: float
    lost: bool = False
    held: tuple[tuple[str, str | None, bool], ...] = ()
    live_pods: int = 1
    serving: dict[str, int] = {}
    shares: dict[str, int] = {}
    wish: str = "serve"
    stacks_asked: float | str | None = None  # an instant that is infinite, as JSON has it, is a text


_as_answer: Final = msgspec.json.Decoder(_Answer).decode
_as_shares: Final = msgspec.json.Decoder(dict[str, int]).decode


def register(card: PodCard, time: Time) -> Talk[None]:
    yield BEGIN
    yield _REGISTER, (*time, card.id, rows.card_text(card), card.lease)
    yield _DROP_SHARES, (card.id,)
    yield from insert.ensure([(queue, 0) for queue in card.queues])
    yield from catalog.see(card, time[0])
    yield from deploys.see(card, time[0])
    yield COMMIT


def beat(
    pod: str,
    lease: float,
    runs: Sequence[RunReport],
    time: Time,
    *,
    renew: bool,
    suspects: Sequence[str],
    stats: PodStats | None = None,
    stacks: str | None = None,
) -> Talk[Beaten]:
    reported = {(run.id, run.token): run for run in runs if rows.is_id(run.id)}.values()
    queues = yield QUEUES, ()
    # Last: the server's list of sessions shows by it which one is the Heart's.
    ((text,),) = yield (
        BEAT,
        (
            *time, pod, lease, renew, [run.id for run in reported], [run.token for run in reported],
            [run.slot for run in reported], list(suspects), SMALL_FOR_BEATS,
            None if stats is None else rows.json_text(stats), stacks,
        ),
    )  # fmt: skip
    answer = _as_answer(text)
    if answer.lost:
        return Beaten(now=answer.now, lost=True)
    return Beaten(
        now=answer.now,
        held=tuple(Held(id, token, wanted) for id, token, wanted in answer.held if token is not None),
        queues=tuple(map(rows.queue_of, queues)),
        live_pods=answer.live_pods,
        serving=answer.serving,
        shares=answer.shares,
        wish=rows.wish_of(answer.wish),
        stacks_asked=None if isinstance(answer.stacks_asked, str) else answer.stacks_asked,
    )


def mend(pod: str, runs: Sequence[RunReport]) -> Talk[bool]:
    """Put right what somebody has written into the rows that a beat writes to; whether anything was wrong."""
    own = yield _MEND, (pod,)
    jobs = yield from bounds.mend(rows.ids_of(run.id for run in runs))
    return bool(own) or jobs


def sign_off(pod: str, now: float | None) -> Talk[None]:
    yield BEGIN
    # The row stays, unseen, until somebody has looked whether the pod left jobs behind.
    found = yield (
        f"update treadle.pod set gone = true, swept = false where id = $2::text "
        f"returning card, date_part('epoch', {sql.CLOCK})",
        (now, pod),
    )
    for card, clock in found:
        yield from catalog.see_again(card, clock)
    yield "delete from treadle.run where pod = $1::text", (pod,)
    yield _DROP_SHARES, (pod,)
    yield from step_down(pod)
    yield COMMIT


def lead(pod: str, ttl: float, time: Time) -> Talk[int | None]:
    won = yield _LEAD, (*time, pod, ttl)
    return won[0][0] if won else None


def step_down(pod: str) -> Talk[None]:
    yield "update treadle.leader set holder = '', until = '-infinity' where holder = $1::text", (pod,)


def abandoned(limit: int, overdue: float, time: Time, *, thorough: bool, lanes: bool) -> Talk[list[Abandoned]]:
    """Running jobs of pods that are not live, and those far beyond their deadline, oldest first."""
    if lanes:
        yield "select treadle.lanes_1()", ()
    suspects = yield _SUSPECTS, (*time, STILL_UNDER_WAY)
    ((small,),) = yield f"select pg_relation_size('treadle.job') < {SMALL_FOR_SCANS}", ()
    if not (suspects or small or thorough):
        found = yield _OVERDUE, (time[0], overdue, limit)
        return [Abandoned(rows.job_of(row[:-2]), "deadline", *_told(row[-2:], str(row[18]))) for row in found]
    found = yield _ABANDONED, (*time, overdue, limit)
    answers = [Abandoned(rows.job_of(row[:-3]), row[-1], *_told(row[-3:-1], str(row[18]))) for row in found]
    left = {each.job.pod for each in answers}
    if len(found) < limit:
        yield from _sweep([id for id, _, _, settled, _ in suspects if settled and id not in left], time)
    return answers


def _told(row: Sequence[Any], otherwise: str) -> tuple[str, float | None]:
    """The pod's label, and when the pod was last heard of."""
    card, beat_at = row
    return rows.card_of(otherwise, card).label if card else otherwise, beat_at


def _sweep(pods: list[str], time: Time) -> Talk[None]:
    """They were looked after and have nothing left: forget those that signed off, and those of long ago."""
    if pods:
        yield _SWEPT, (pods,)
    forgotten = yield (
        f"delete from treadle.pod where swept and (gone or beat_at < {sql.NOW} - $2::float8 * interval '1 second') "
        "returning card, date_part('epoch', beat_at)",
        (time[0], FORGET_AFTER),
    )
    for card, beat_at in forgotten:
        yield from catalog.see_again(card, within(beat_at))
    if forgotten:
        yield "delete from treadle.share as s where not exists (select from treadle.pod as p where p.id = s.pod)", ()
    yield f"delete from treadle.held where until <= {sql.NOW}", (time[0],)


def pods(time: Time) -> Talk[list[Pod]]:
    found = yield _PODS, time
    return [
        Pod(
            card=rows.card_of(id, card),
            started_at=started_at,
            beat_at=beat_at,
            lease_left=lease_left,
            running=running,
            leader=leader,
            lost=lost,
            stats=rows.stats_of(stats),
            wish=rows.wish_of(wish),
            wish_by=wish_by,
            stacks=stacks,
            stacks_at=stacks_at,
            stacks_asked=stacks_asked,
            shares={} if shares is None else _as_shares(shares),
        )
        for (
            id,
            card,
            started_at,
            beat_at,
            lease_left,
            lost,
            leader,
            running,
            stats,
            wish,
            wish_by,
            stacks,
            stacks_at,
            stacks_asked,
            shares,
        ) in found
    ]
