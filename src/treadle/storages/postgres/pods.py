"""What is known of pods beside their leases: stats, wishes, stacks, shares; and the tasks that wait for a pod."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ...core.balance import Share
from ...core.pod import Wish
from ...core.warnings import DueTask
from . import rows, sql
from .cluster import LIVE, STEADY, Time
from .desk import Desks
from .news import News
from .talk import BEGIN, COMMIT, Talk

MOST_COUNTED: Final = 1_000
# In all lanes together, if they are many, and in each of them.
MOST_LOOKED_AT: Final = 5_000
LEAST_LOOKED_AT: Final = 100

_ORDER: Final = f"""
update treadle.pod
set
    wish = coalesce($5::text, wish),
    wish_by = case when $5::text is null then wish_by else $6::text end,
    stacks_asked = case when $7::boolean then {sql.CLOCK} else stacks_asked end
where id = $4::text and {LIVE} and {STEADY} is not null
returning 1
"""
_DROP: Final = """
delete from treadle.share as s
using unnest($1::text[], $2::text[]) as u (queue, pod)
where s.pod = u.pod and s.queue = u.queue
"""
_SAVE: Final = """
insert into treadle.share (queue, pod, share)
select u.queue, u.pod, u.share
from unnest($1::text[], $2::text[], $3::int4[]) as u (queue, pod, share)
join treadle.pod as p on p.id = u.pod and not p.gone
order by u.pod, u.queue
on conflict (pod, queue) do update
set share = excluded.share
where share.share <> excluded.share
"""
# No index is in the order of tasks. What nobody claims is passed by everything else and ends up at the heads.
_DUE: Final = f"""
select l.queue, s.task, least(count(*), {MOST_COUNTED}),
    least(date_part('epoch', {sql.NOW}) - date_part('epoch', min(s.run_at)), 1e11)
from treadle.lane as l
cross join lateral (
    select j.task, j.state, j.run_at
    from treadle.job as j
    where j.queue = l.queue and j.priority = l.priority and j.run_at <= {sql.NOW}
    order by j.run_at, j.seq
    limit (select least({MOST_COUNTED}, greatest({LEAST_LOOKED_AT}, {MOST_LOOKED_AT} / count(*))) from treadle.lane)
) as s
where s.state = 'ready'
group by l.queue, s.task
order by l.queue, s.task
"""


class PostgresPods:
    """The verbs. What they stand on is the storage's own."""

    _desks: Desks
    _time: Callable[[], Time]
    _now: Callable[[], float | None]
    _tell: Callable[[News], None]
    _read: Callable[[Callable[[], Talk[Any]]], Coroutine[Any, Any, Any]]

    async def order_pod(self, pod: str, wish: Wish | None, *, stacks: bool = False, by: str | None = None) -> bool:
        if not rows.is_text(pod):
            return False
        moment = self._time()
        done = await self._desks.mine().slow.run(lambda: order(pod, wish, stacks, by, moment))
        if done:
            self._tell_settings()
        return done

    async def save_shares(self, shares: Sequence[Share]) -> None:
        if shares:
            await self._desks.mine().slow.run(lambda: save_shares(shares))
            self._tell_settings()

    async def due_tasks(self) -> Sequence[DueTask]:
        now = self._now()
        found: list[DueTask] = await self._read(lambda: due_tasks(now))
        return found

    def _tell_settings(self) -> None:
        news = News()
        news.settings = True
        self._tell(news)


def order(pod: str, wish: Wish | None, stacks: bool, by: str | None, time: Time) -> Talk[bool]:
    done = yield _ORDER, (*time, pod, wish, by, stacks)
    return bool(done)


def save_shares(shares: Sequence[Share]) -> Talk[None]:
    gone = [each for each in shares if each.share is None]
    kept = [each for each in shares if each.share is not None]
    yield BEGIN
    if gone:
        yield _DROP, ([each.queue for each in gone], [each.pod for each in gone])
    if kept:
        yield _SAVE, ([each.queue for each in kept], [each.pod for each in kept], [each.share for each in kept])
    yield COMMIT


def due_tasks(now: float | None) -> Talk[list[DueTask]]:
    found = yield _DUE, (now,)
    return [DueTask(queue, task, count, seconds) for queue, task, count, seconds in found]
