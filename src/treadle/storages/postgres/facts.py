"""Facts: what `doctor` should know about a PostgreSQL server and what is in it."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from ...core.duration import words
from ...ports import Fact
from . import bounds, migrations
from .cluster import SMALL_FOR_BEATS
from .roles import Sight
from .sql import Schema
from .talk import BEGIN, COMMIT, Ask, BadValue, Talk

OLD_SNAPSHOT: Final = 300.0
MANY_DEAD: Final = 1_000_000
FEW_CONNECTIONS: Final = 10
SKEW: Final = 1.0
# A look at the front of a lane reads a few pages. So many more, full of dead rows, take a millisecond: as long as the
# claim itself (measured: 4,000 jobs that have ended leave 360 of them, and those take 0.35 ms).
MANY_PAGES: Final = 1_000
HELD: Final = 10.0  # a transaction that is younger has not kept these rows
MOST_LANES: Final = 500

# What keeps vacuum from removing finished jobs: sessions, prepared transactions, replication slots.
_SNAPSHOTS: Final = """
select what, since, age, remedy from (
    select
        format('session %s (%s)', pid, concat_ws(
            ', ', 'user ' || usename, nullif(application_name, ''), coalesce(state, backend_type)
        )) as what,
        date_part('epoch', clock_timestamp() - xact_start) as since,
        age(coalesce(backend_xmin, backend_xid)) as age,
        format('SELECT pg_terminate_backend(%s)', pid) as remedy
    from pg_stat_activity
    where
        coalesce(backend_xmin, backend_xid) is not null and pid <> pg_backend_pid()
        and (datname is null or datname = current_database())
    union all
    select
        format('prepared transaction %s', gid), date_part('epoch', clock_timestamp() - prepared), age(transaction),
        format('ROLLBACK PREPARED %L', gid)
    from pg_prepared_xacts
    where database = current_database()
    union all
    select format('replication slot %s', slot_name), null, age(xmin), 'let its standby catch up, or drop the slot'
    from pg_replication_slots where xmin is not null
) as holder
order by since desc nulls last
limit 1
"""
# What a claim that starts at the front of each lane has to walk over.
_WALK: Final = """
explain (analyze, buffers, timing off, costs off, format json)
select head.seq
from (select queue, priority from treadle.lane limit $limit) as lane
cross join lateral (
    select job.seq
    from treadle.job as job
    where
        job.queue = lane.queue and job.priority = lane.priority and job.run_at <= statement_timestamp()
        and job.state = 'ready'
    order by job.run_at, job.seq
    limit 1
) as head
""".replace("$limit", str(MOST_LANES))
# As a claim does it: a small table would be read as a whole.
_BY_INDEX: Final[Ask] = (
    "select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)",
    (),
)
_MAY_SEE: Final = "select pg_has_role(current_user, 'pg_read_all_stats', 'usage')"
_TABLES: Final = """
select
    relname, n_live_tup, n_dead_tup, date_part('epoch', clock_timestamp() - coalesce(last_autovacuum, last_vacuum)),
    pg_total_relation_size(relid)
from pg_stat_user_tables
where schemaname = $1::text and relname in ('job', 'job_history')
order by relname
"""
_ROLES: Final[dict[Sight, str]] = {
    "all": "this login may read everything",
    "viewer": "this login may read everything but what jobs carry (a viewer's)",
    "enqueuer": "this login may enqueue and look up jobs by their id, and read nothing else (an enqueuer's)",
}
_CLAIM_PLAN: Final = """
explain select ctid from treadle.job
where
    queue = 'default' and priority = 0 and (run_at, seq) > ('-infinity', 0) and run_at <= statement_timestamp()
    and state = 'ready'
order by run_at, seq limit 100 for update skip locked
"""
_READABLE: Final = """
select relname, pg_relation_size(oid)
from pg_class
where
    relnamespace = to_regnamespace($1::text)::oid and relkind in ('r', 'v', 'p')
    and has_table_privilege(oid, 'select')
"""
_INVALID: Final = """
select c.relname
from pg_index as i
join pg_class as c on c.oid = i.indexrelid
where c.relnamespace = to_regnamespace($1::text)::oid and not (i.indisvalid and i.indisready)
"""


def facts(schema: Schema, pooled: bool, listening: bool | None, sight: Sight) -> Talk[list[Fact]]:
    found = [(yield from _version()), *(yield from _schema(schema)), _role(sight), _pooler(pooled, listening)]
    found += yield from _durability()
    found.append((yield from _snapshot()))
    found += yield from _tables(schema)
    if sight == "all":  # to explain a statement, one needs the rights of whoever would run it
        found.append((yield from _slow_claims(schema)))
        found.append((yield from _plan(schema)))
        found += yield from _rows(schema)
    found.append((yield from _headroom()))
    found.append((yield from _clock()))
    return found


def _version() -> Talk[Fact]:
    ((text, number),) = yield "select current_setting('server_version'), current_setting('server_version_num')::int", ()
    if number >= 140_000:
        return Fact("postgres-version", "ok", f"PostgreSQL {text}")
    return Fact("postgres-version", "error", f"PostgreSQL {text}", "use PostgreSQL 14 or newer")


def _schema(schema: Schema) -> Talk[list[Fact]]:
    status = yield from migrations.status(schema)
    if status.pending:
        text = f"schema {status.current} in {schema.name}, and {status.newest} is the newest"
        usable = status.current >= migrations.OLDEST_USABLE
        return [Fact("schema", "warn" if usable else "error", text, "treadle db migrate")]
    facts = [Fact("schema", "ok", f"schema {status.current} in {schema.name}")]
    applied = yield "select version, checksum from treadle.schema_version", ()
    checksums: dict[int, str] = dict(map(tuple, applied))
    facts += [
        Fact(
            "schema-checksum",
            "warn",
            f"migration {migration.name} was applied from another text than this version's",
            "see which Treadle made the schema",
        )
        for migration in migrations.known()
        if checksums.get(migration.version, migration.checksum) != migration.checksum
    ]
    return facts


def _role(sight: Sight) -> Fact:
    return Fact("role", "ok", _ROLES[sight])


def _pooler(pooled: bool, listening: bool | None) -> Fact:
    if not pooled:
        return Fact("pooler", "ok", "a direct connection")
    if listening:
        return Fact("pooler", "ok", "through a pooler; wakes come by listen_url")
    return Fact(
        "pooler",
        "warn",
        "through a transaction pooler: new jobs are found by polling, up to a second late",
        "give listen_url, a direct connection, for waking",
    )


def _durability() -> Talk[list[Fact]]:
    ((commit, fsync),) = yield "select current_setting('synchronous_commit'), current_setting('fsync')", ()
    facts: list[Fact] = []
    if fsync != "on":
        facts.append(
            Fact("fsync", "error", "fsync is off: a crash of the machine may destroy the database", "turn it on")
        )
    if commit == "off":
        facts.append(
            Fact(
                "synchronous-commit",
                "warn",
                "synchronous_commit is off: a crash may undo the last enqueues and finishes",
                "turn it on for this database or role",
            )
        )
    else:
        facts.append(Fact("synchronous-commit", "ok", f"synchronous_commit is {commit}"))
    return facts


def _snapshot() -> Talk[Fact]:
    found = yield _SNAPSHOTS, ()
    if not found or (found[0][1] is not None and found[0][1] < OLD_SNAPSHOT):
        return Fact("old-snapshot", "ok", "no old transaction keeps finished jobs from being removed")
    what, since, age, remedy = found[0]
    return Fact(
        "old-snapshot",
        "warn",
        f"{what} has held its snapshot {_lasting(since, age)}: vacuum cannot remove what has finished since",
        f"{remedy}, or set idle_in_transaction_session_timeout",
    )


def _lasting(since: float | None, age: int) -> str:
    return f"for {words(float(round(since)))}" if since is not None else f"for {age:,} transactions"


def _slow_claims(schema: Schema) -> Talk[Fact]:
    """Whether claims are harmed by rows that vacuum may not remove, and by whom: what one look costs is measured, so a
    transaction that is merely long does not count."""
    yield BEGIN
    yield _BY_INDEX
    ((walked,),) = yield _WALK, ()
    yield COMMIT
    pages = dead_pages(json.loads(walked))
    if pages < MANY_PAGES:
        return Fact("slow-claims", "ok", "claims find their jobs at once")
    found = yield _SNAPSHOTS, ()
    text = f"claims are slow: each look reads {pages:,} pages of dead rows"
    if found and (found[0][1] is None or found[0][1] >= HELD):
        what, since, age, remedy = found[0]
        text += f", because {what} has held its snapshot {_lasting(since, age)} and vacuum cannot remove them"
        return Fact("slow-claims", "warn", text, remedy)
    ((may_see,),) = yield _MAY_SEE, ()
    if may_see:
        return Fact("slow-claims", "warn", f"{text} that vacuum has not removed yet", f"VACUUM {schema.name}.job")
    text += ", and this login may not see which transaction keeps vacuum from removing them"
    return Fact("slow-claims", "warn", text, f"GRANT pg_read_all_stats TO this login, or VACUUM {schema.name}.job")


def dead_pages(explained: list[dict[str, Any]]) -> int:
    """The pages that were read for nothing: less one for each row that is there, and what each lane costs anyway."""
    plan = explained[0]["Plan"]
    pages: int = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    lanes = rows = 0
    left = [plan]
    while left:
        node = left.pop()
        loops = node.get("Actual Loops", 1)
        rows += round(node.get("Rows Removed by Filter", 0) * loops)
        lanes += loops if node["Node Type"].startswith("Index") else 0
        left += node.get("Plans", ())
    return max(0, pages - rows - 10 * lanes)


def _tables(schema: Schema) -> Talk[list[Fact]]:
    facts: list[Fact] = []
    found = yield _TABLES, (schema.name,)
    for name, live, dead, vacuumed, size in found:
        when = f"vacuumed {vacuumed:,.0f} s ago" if vacuumed is not None else "not vacuumed yet"
        text = f"{name}: {live:,} rows, {dead:,} dead, {size / (1 << 20):,.0f} MiB, {when}"
        if dead > MANY_DEAD and dead > live:
            facts.append(Fact(f"table-{name}", "warn", text, "see old-snapshot, and whether autovacuum keeps up"))
        else:
            facts.append(Fact(f"table-{name}", "ok", text))
    return facts


def _plan(schema: Schema) -> Talk[Fact]:
    broken = yield _INVALID, (f'"{schema.name}"',)
    if broken:
        return Fact("claim-plan", "error", f"the index {broken[0][0]} is not valid", f"reindex index {broken[0][0]}")
    yield BEGIN
    yield _BY_INDEX
    try:
        plan = yield _CLAIM_PLAN, ()
    except BadValue:
        plan = []
    yield COMMIT
    if any("job_lane" in row[0] for row in plan):
        return Fact("claim-plan", "ok", "a claim reads the index job_lane")
    return Fact("claim-plan", "error", "a claim does not use the index job_lane", "see whether it is there; analyze")


def _rows(schema: Schema) -> Talk[list[Fact]]:
    """Rows beyond their bounds, in the tables that the caller may read."""
    tables = yield _READABLE, (f'"{schema.name}"',)
    small = {name: size < SMALL_FOR_BEATS for name, size in tables}
    found = yield from bounds.flaws(small)
    facts: list[Fact] = []
    jobs = [flaw for flaw in found if flaw[0] not in bounds.KEYS]
    others = [flaw for flaw in found if flaw[0] in bounds.KEYS]
    for table, key, queue, task, what in jobs[: bounds.MOST_NAMED] + others[: bounds.MOST_NAMED]:
        if table not in bounds.KEYS:
            text = f"the row of job {key} (queue {queue}, task {task}) is damaged: {what}"
            facts.append(Fact("job-row", "error", text, f"treadle jobs delete {key}; find out who else writes to it"))
        else:
            name = bounds.KEYS[table]
            text = f"the table {table} has a damaged row ({name} {key}): {what}"
            remedy = f"find out who else writes to {schema.name}.{table}, then mend or delete the row"
            facts.append(Fact("row", "error", text, remedy))
    return facts


def _headroom() -> Talk[Fact]:
    ((used, most, reserved),) = yield (
        "select (select count(*) from pg_stat_activity where backend_type = 'client backend'), "
        "current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int",
        (),
    )
    free = most - reserved - used
    text = f"{used} of {most} connections are in use; a pod needs four or five"
    if free < FEW_CONNECTIONS:
        return Fact("connections", "warn", text, "raise max_connections, or put a pooler in front")
    return Fact("connections", "ok", text)


def _clock() -> Talk[Fact]:
    before, sent = time.time(), time.monotonic()
    ((there,),) = yield "select date_part('epoch', clock_timestamp())", ()
    took = time.monotonic() - sent
    skew = there - (before + took / 2)
    if abs(skew) > SKEW + took / 2:  # what the answer's way may account for is no skew
        return Fact(
            "clock-skew",
            "warn",
            f"the server's clock is {skew:+.1f} s away from this machine's; the server's decides",
            "run NTP on both",
        )
    return Fact("clock-skew", "ok", f"clocks agree within {max(abs(skew), 0.001):.3f} s")
