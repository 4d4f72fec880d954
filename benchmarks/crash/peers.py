"""The peers of the crash table: how each is started, what its two settings are, and how to ask what is left."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .. import venvs

HERE = Path(__file__).parent
QUICK = {"lease": 3, "beat": 1, "scan": 0.5, "leader_ttl": 1.5, "leader_every": 0.5}


@dataclass(frozen=True, kw_only=True)
class CrashPeer:
    name: str
    title: str
    version: str
    module: str  # of benchmarks.crash
    left: str  # how many jobs have not ended
    default: str  # its settings, in words
    fast: str | None  # and the fastest that are documented; None: there are none
    requirements: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # of its worker; none: `python -m MODULE work`
    on_sqlite: bool = False
    poison_in: str = "fast"  # the settings under which a worker-killing job is watched
    failed: str | None = None  # how many have ended as failed, if that is kept
    quick: Mapping[str, str] = field(default_factory=dict[str, str])  # environment of the fast settings

    @property
    def python(self) -> str:
        return venvs.python(self.name) if self.requirements else sys.executable

    def verb(self, *words: str) -> list[str]:
        return [self.python, "-m", f"benchmarks.crash.{self.module}", *words]

    def worker(self) -> list[str]:
        return (
            [str(Path(self.python).with_name(self.command[0])), *self.command[1:]]
            if self.command
            else self.verb("work")
        )


_TREADLE = ("treadle", "worker", "-A", "benchmarks.crash.jobs_treadle:app", "-q", "default:4")
_TIMING = {f"TREADLE_{name.upper()}": str(value) for name, value in QUICK.items()}
_IN_WORDS = ", ".join(f"{name} {value:g} s" for name, value in QUICK.items())

PEERS = [
    CrashPeer(
        name="treadle-sqlite",
        title="Treadle on SQLite",
        version="0.1.0",
        module="jobs_treadle",
        command=_TREADLE,
        on_sqlite=True,
        left="select count(*) from treadle_job where finished_at is null",
        failed="select count(*) from treadle_job where state = 'failed'",
        default="nothing set",
        fast=_IN_WORDS,
        quick=_TIMING,
    ),
    CrashPeer(
        name="treadle-postgres",
        title="Treadle on PostgreSQL",
        version="0.1.0",
        module="jobs_treadle",
        command=_TREADLE,
        left="select count(*) from treadle.job",
        failed="select count(*) from treadle.job_history where state = 'failed'",
        default="nothing set (lease 30 s, scan 5 s)",
        fast=_IN_WORDS,
        quick=_TIMING,
    ),
    CrashPeer(
        name="huey",
        title="Huey on SQLite",
        version="3.5.4",
        module="jobs_huey",
        command=("huey_consumer", "benchmarks.crash.jobs_huey.huey", "-k", "thread", "-w", "4"),
        on_sqlite=True,
        left="select (select count(*) from task) + (select count(*) from schedule)",
        default="retries=3",
        fast=None,
    ),
    CrashPeer(
        name="procrastinate",
        title="Procrastinate",
        version="3.10.0",
        module="jobs_procrastinate",
        requirements=("procrastinate==3.10.0", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3"),
        command=("procrastinate", "--app", "benchmarks.crash.jobs_procrastinate.app", "worker", "-c", "4"),
        left="select count(*) from procrastinate_jobs where status in ('todo', 'doing') and task_name = 'act'",
        failed="select count(*) from procrastinate_jobs where status = 'failed' and task_name = 'act'",
        default="retry=3",
        fast="its recipe for stalled jobs as a periodic task every 5 s, beats of 1 s, stalled after 3 s",
    ),
    CrashPeer(
        name="pgqueuer",
        title="PgQueuer",
        version="1.6.0",
        module="jobs_pgqueuer",
        requirements=("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        left="select count(*) from pgqueuer",
        default="nothing set (heartbeat_timeout 30 s)",
        fast="heartbeat_timeout 3 s, dequeue_timeout 1 s",
    ),
    CrashPeer(
        name="awa-pg",
        title="awa-pg",
        version="0.6.9",
        module="jobs_awa",
        requirements=("awa-pg==0.6.9",),
        left="select count(*) from awa.jobs where state not in ('completed', 'failed', 'cancelled')",
        failed="select count(*) from awa.jobs where state = 'failed'",
        default="nothing set",
        fast="heartbeats of 1 s, stale after 3 s, rescue and leader election every 1 s",
    ),
    CrashPeer(
        name="saq",
        title="SAQ on PostgreSQL",
        version="0.26.4",
        module="jobs_saq",
        requirements=("saq[postgres]==0.26.4",),
        command=("saq", "benchmarks.crash.jobs_saq.settings"),
        left="select count(*) from saq_jobs where status in ('new', 'queued', 'active', 'aborting')",
        failed="select count(*) from saq_jobs where status in ('failed', 'aborted')",
        default="timeout=300 on the job, as its 10 s would end jobs of 150 s; without heartbeats nothing is "
        "swept before the timeout, so that the row follows from this number",
        fast="and heartbeat=3, retries=10, with the job sending beats; sweep every 1 s",
    ),
    CrashPeer(
        name="chancy",
        title="Chancy",
        version="0.26.0",
        module="jobs_chancy",
        requirements=("chancy[cli]==0.26.0", "psycopg[binary]==3.3.8"),
        left="select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')",
        failed="select count(*) from chancy_jobs where state = 'failed'",
        default="nothing set (heartbeat_timeout 90 s, recovery every 60 s)",
        fast="heartbeats of 1 s, timeout 3 s, recovery and leadership every 1 s",
    ),
    CrashPeer(
        name="dbos",
        title="DBOS Transact",
        version="3.3.0",
        module="jobs_dbos",
        requirements=("dbos==3.3.0",),
        left="select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
        failed="select count(*) from dbos.workflow_status where status in ('ERROR', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED')",
        default="nothing set (all processes are the executor `local`)",
        fast="an executor id for each process, as its documentation asks",
        poison_in="default",
    ),
]
