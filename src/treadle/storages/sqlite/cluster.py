"""The cluster: pods, their leases, the leader, and the jobs that a pod has left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from ...core.pod import Held, Pod, PodCard, PodStats
from ...ports import Abandoned, Beaten, Clock, RunReport
from . import catalog, deploys, rows
from . import pods as about_pods
from .insert import ensure_queue
from .news import News
from .rows import Database
from .sql import statement

FORGET_AFTER: Final = 3600.0
"""So long is the row of a lost or lapsed pod kept for people to see."""


def is_live(db: Database, pod: str, clock: Clock) -> bool:
    found = db.execute(statement("pod_live"), (pod, clock.boot(), clock.steady())).fetchone()
    return found is not None


def register(db: Database, card: PodCard, clock: Clock, news: News) -> None:
    now = clock.now()
    db.execute(
        "insert or replace into treadle_pod (id, card, started_at, beat_at, lease_until, boot) "
        "values (?, ?, ?, ?, ?, ?)",
        (card.id, rows.card_text(card), now, now, clock.steady() + card.lease, clock.boot()),
    )
    about_pods.drop_shares(db, card.id)
    for name in card.queues:
        ensure_queue(db, name)
    catalog.see(db, card, now)
    deploys.see(db, card, now)
    news.settings = True


def beat(
    db: Database,
    pod: str,
    lease: float,
    runs: Sequence[RunReport],
    clock: Clock,
    *,
    renew: bool,
    stats: PodStats | None = None,
    stacks: str | None = None,
) -> Beaten:
    now, steady, boot = clock.now(), clock.steady(), clock.boot()
    known = db.execute(
        "select wish, stacks_asked from treadle_pod where id = ? and not lost and boot = ?", (pod, boot)
    ).fetchone()
    if known is None:
        return Beaten(now=now, lost=True)
    if renew:
        said = None if stats is None else rows.json_text(stats)
        db.execute(statement("beat"), (pod, steady + lease, now, said, stacks))
    for run in runs:
        db.execute(statement("beat_slot"), (run.slot, run.id, run.token))
    held = db.execute(statement("beat_held"), (pod,)).fetchall()
    queues = db.execute(statement("queues")).fetchall()
    live_pods, serving = about_pods.serving(db, boot, steady)
    return Beaten(
        now=now,
        held=tuple(Held(id, token, bool(cancel_wanted)) for id, token, cancel_wanted in held),
        queues=tuple(map(rows.queue_of, queues)),
        live_pods=live_pods,
        serving=serving,
        shares=about_pods.shares_of(db, pod),
        wish=rows.wish_of(known[0]),
        stacks_asked=known[1] if isinstance(known[1], float) else None,
    )


def sign_off(db: Database, pod: str, clock: Clock, news: News) -> None:
    gone = db.execute("delete from treadle_pod where id = ? returning id, card", (pod,)).fetchall()
    for id, card in gone:
        catalog.see_again(db, rows.card_of(id, str(card)), clock.now())
    about_pods.drop_shares(db, pod)
    step_down(db, pod)
    news.settings = True


def lead(db: Database, pod: str, ttl: float, clock: Clock) -> int | None:
    steady, boot = clock.steady(), clock.boot()
    if not is_live(db, pod, clock):
        return None
    won = db.execute(statement("lead"), (pod, steady, steady + ttl, boot)).fetchone()
    return None if won is None else won[0]


def step_down(db: Database, pod: str) -> None:
    db.execute("update treadle_leader set holder = '', until = 0.0 where holder = ?", (pod,))


def abandoned(db: Database, limit: int, overdue: float, clock: Clock) -> list[Abandoned]:
    """Running jobs of pods that are not live, and those far beyond their deadline, oldest first."""
    now = clock.now()
    known = pods(db, clock)
    live = {pod.card.id for pod in known if pod.live}
    # A lease of another run of the machine has no seconds left to count: whoever held it is gone with that run.
    here = {id for (id,) in db.execute("select id from treadle_pod where not lost and boot = ?", (clock.boot(),))}
    labels = {pod.card.id: pod.card.label for pod in known}
    beats = {pod.card.id: pod.beat_at for pod in known}
    found = db.execute(statement("abandoned"), (rows.json_text(sorted(live)), overdue, now, limit)).fetchall()
    jobs = (rows.job_of(row, now, rows.all_errors(db, row[0]) if row[-1] else ()) for row in found)
    return [
        Abandoned(job, _why(job.pod, live, here), labels.get(job.pod or "", str(job.pod)), beats.get(job.pod or ""))
        for job in jobs
        if job is not None
    ]


def _why(pod: str | None, live: set[str], here: set[str]) -> Literal["gone", "lease", "deadline"]:
    if pod in live:
        return "deadline"
    return "lease" if pod in here else "gone"


def candidates(db: Database, clock: Clock) -> list[str]:
    """Pods that are believed to run on this very machine: of them, death can be proved."""
    found = db.execute("select id from treadle_pod where not lost and boot = ?", (clock.boot(),))
    return [id for (id,) in found if isinstance(id, str)]


def declare_lost(db: Database, pods: Iterable[str]) -> None:
    for pod in pods:
        db.execute("update treadle_pod set lost = 1 where id = ?", (pod,))


def is_anything_to_forget(db: Database, clock: Clock) -> bool:
    return db.execute(statement("forget_needed"), _forget_bounds(clock)).fetchone() is not None


def forget(db: Database, clock: Clock) -> None:
    """Remove what nobody needs any more: rows of pods long gone, keys whose period is over."""
    for id, card, beat_at in db.execute(statement("forget_pods"), _forget_bounds(clock)).fetchall():
        if isinstance(beat_at, float):  # else somebody damaged the row
            catalog.see_again(db, rows.card_of(str(id), str(card)), beat_at)
    db.execute("delete from treadle_share where pod not in (select id from treadle_pod)")
    db.execute("delete from treadle_held where until <= ?", (clock.now(),))


def _forget_bounds(clock: Clock) -> tuple[float, str, float]:
    return clock.now() - FORGET_AFTER, clock.boot(), clock.steady()


def pods(db: Database, clock: Clock) -> list[Pod]:
    steady, boot = clock.steady(), clock.boot()
    shares = about_pods.shares(db)
    leading = db.execute("select holder from treadle_leader where until > ? and boot = ?", (steady, boot)).fetchone()
    return [
        Pod(
            card=rows.card_of(id, card),
            started_at=started_at,
            beat_at=beat_at,
            lease_left=lease_until - steady if row_boot == boot else 0.0,
            running=running,
            leader=leading is not None and leading[0] == id,
            lost=bool(lost),
            stats=rows.stats_of(stats),
            wish=rows.wish_of(wish),
            wish_by=wish_by,
            stacks=stacks,
            stacks_at=stacks_at,
            stacks_asked=stacks_asked,
            shares=shares.get(id, {}),
        )
        for (
            id,
            card,
            started_at,
            beat_at,
            lease_until,
            row_boot,
            lost,
            running,
            stats,
            wish,
            wish_by,
            stacks,
            stacks_at,
            stacks_asked,
        ) in map(rows.pod_row, db.execute(statement("pods")))
    ]
