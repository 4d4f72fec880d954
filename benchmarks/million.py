"""A million jobs, straight into the tables: half of them live in every state, half of them ended, from the last week.

Six queues of very different sizes, twelve tasks, three priorities; tags on one job in twenty; an error on what has
failed or waits for its retry. Which job is what follows from its number, so that both storages hold the same.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any, Final

# i: the number; k: 0…999, as good as random; q: 0…999, another one.
_KIND: Final = """
case
    when k < 250 then 'ready' when k < 400 then 'scheduled' when k < 495 then 'retrying' when k < 499 then 'waiting'
    when k < 500 then 'running' when k < 900 then 'succeeded' when k < 980 then 'failed' else 'cancelled'
end
"""
_QUEUE: Final = """
case
    when q < 500 then 'mail' when q < 750 then 'bulk' when q < 900 then 'default' when q < 980 then 'media'
    when q < 998 then 'billing' else 'audit'
end
"""
_ERROR: Final = (
    '{"attempt":1,"kind":"error","type":"builtins.ConnectionError","place":"shop.mail:send","message":"refused by host '
)
QUEUES: Final = ("audit", "billing", "bulk", "default", "mail", "media")

_SQLITE: Final = f"""
insert into treadle_job (
    id, queue, task, state, priority, run_at, created_at, attempt, max_attempts, format, unique_key, pod, token,
    started_at, finished_at, error_count, tags, reason, args, result
)
with recursive
    n (i) as (select 1 union all select i + 1 from n where i < ?1),
    mixed as (select i, (i * 2654435761 >> 7) % 1000 as k, (i * 2246822519 >> 9) % 1000 as q from n),
    named as (select i, k, q, {_KIND} as kind, {_QUEUE} as queue, ?2 - 604800.0 * (?1 - i) / ?1 as at from mixed)
select
    printf(
        '%08x-%04x-7%03x-8%03x-%012x', cast(at * 1000 as integer) >> 16, cast(at * 1000 as integer) & 65535, i & 4095,
        (i >> 12) & 4095, i
    ),
    queue,
    'task' || (q % 12),
    case when kind in ('ready', 'scheduled', 'retrying') then 'ready' else kind end,
    (q / 7) % 3 * 10,
    case
        when kind = 'scheduled' then ?2 + 3600.0 + (i * 7919) % 604800
        when kind = 'retrying' then ?2 + 3600.0 + (i * 104729) % 86400
        else at
    end,
    at,
    case when kind in ('ready', 'scheduled', 'waiting') then 0 else 1 end,
    5, 1,
    case when k = 1 then 'key' || i end,
    case when kind not in ('ready', 'scheduled', 'waiting') then 'pod' || (i % 5) end,
    case when kind = 'running' then 'token' || i end,
    case when kind not in ('ready', 'scheduled', 'waiting') then at + 1.0 end,
    case when kind in ('succeeded', 'failed', 'cancelled') then at + 2.0 end,
    kind in ('retrying', 'failed'),
    case when q % 20 = 0 then '["vip","batch' || (i / 1000) || '"]' end,
    case when q = 7 then 'asked for' end,
    '{{"user_id":' || i || ',"template":"welcome","amount":' || (i % 977) || '}}',
    case when kind = 'succeeded' then '{{"sent":true}}' end
from named
"""
_SQLITE_AFTER: Final = (
    f"""
    insert into treadle_job_error (seq, n, entry)
    select seq, 1, '{_ERROR}' || (seq % 50) || '","at":"shop.mail:send' || (seq % 17) || '"}}'
    from treadle_job where error_count > 0
    """,
    "insert into treadle_job_tag (tag, seq) select 'vip', seq from treadle_job where tags is not null",
    """
    insert into treadle_job_tag (tag, seq)
    select 'batch' || (seq / 1000), seq from treadle_job where tags is not null
    """,
)

_POSTGRES_SOURCE: Final = f"""
with
    mixed as (
        select i, ((i * 2654435761) >> 7) % 1000 as k, ((i * 2246822519) >> 9) % 1000 as q
        from generate_series(1, {{jobs}}::bigint) as i
    ),
    named as (
        select i, k, q, {_KIND} as kind, {_QUEUE} as queue, {{now}}::float8 - 604800.0 * ({{jobs}} - i) / {{jobs}} as at
        from mixed
    )
"""
_POSTGRES_ID: Final = (
    "(lpad(to_hex((at * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(i & 4095), 3, '0') || '8' || "
    "lpad(to_hex((i >> 12) & 4095), 3, '0') || lpad(to_hex(i), 12, '0'))::uuid"
)
_SHARED: Final = f"""
    {_POSTGRES_ID} as id, queue, 'task' || (q % 12) as task, (q / 7) % 3 * 10 as priority,
    to_timestamp(at) as created_at, 5 as max_attempts, 1 as format, case when k = 1 then 'key' || i end as unique_key,
    case when q % 20 = 0 then array['vip', 'batch' || (i / 1000)] end as tags,
    case when q = 7 then 'asked for' end as reason,
    '{{{{"user_id":' || i || ',"template":"welcome","amount":' || (i % 977) || '}}}}' as args
"""
_POSTGRES: Final = (
    f"""
    insert into treadle.job (
        id, queue, task, priority, created_at, max_attempts, format, unique_key, tags, reason, args,
        state, run_at, attempt, error_count, pod, token, started_at
    )
    {_POSTGRES_SOURCE}
    select {_SHARED},
        case when kind in ('ready', 'scheduled', 'retrying') then 'ready' else kind end,
        to_timestamp(case
            when kind = 'scheduled' then {{now}}::float8 + 3600.0 + (i * 7919) % 604800
            when kind = 'retrying' then {{now}}::float8 + 3600.0 + (i * 104729) % 86400
            else at
        end),
        case when kind in ('retrying', 'running') then 1 else 0 end,
        case when kind = 'retrying' then 1 else 0 end,
        case when kind = 'running' then 'pod' || (i % 5) end, case when kind = 'running' then 'token' || i end,
        case when kind in ('retrying', 'running') then to_timestamp(at + 1.0) end
    from named where k < 500
    order by i
    """,
    f"""
    insert into treadle.job_history (
        id, queue, task, priority, created_at, max_attempts, format, unique_key, tags, reason, args,
        seq, state, run_at, started_at, finished_at, pinned, attempt, crashes, snoozes, throttles, error_count, pod,
        cause, result
    )
    {_POSTGRES_SOURCE}
    select {_SHARED}, i, kind, to_timestamp(at), to_timestamp(at + 1.0), to_timestamp(at + 2.0), false, 1, 0, 0, 0,
        case when kind = 'failed' then 1 else 0 end, 'pod' || (i % 5),
        case when kind = 'failed' then 'task' || (q % 12) || ':builtins.ConnectionError:shop.mail:send' end,
        case when kind = 'succeeded' then '{{{{"sent":true}}}}' end
    from named where k >= 500
    order by i
    """,
    f"""
    insert into treadle.job_error (job_id, n, ended_at, entry)
    select id, 1, now(), '{_ERROR.replace("{", "{{")}' || (seq % 50) || '","at":"shop.mail:send"}}}}'
    from (
        select id, seq from treadle.job where error_count > 0
        union all select id, seq from treadle.job_history where error_count > 0
    ) as failed
    """,
    "insert into treadle.run (job_id, pod, token) select id, pod, token from treadle.job where state = 'running'",
    """
    insert into treadle.answer (id, job_id, claim, timeout, opened_at, expires_at, waits)
    select id::text, id::text, '', 60.0, 0.0, 4e9, true from treadle.job where state = 'waiting'
    """,
    """
    insert into treadle.lane (queue, priority)
    select distinct queue, priority from treadle.job on conflict do nothing
    """,
)


def into_sqlite(path: str, jobs: int, now: float) -> None:
    """The storage has made its tables, and is closed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma synchronous = off")
        db.execute("pragma cache_size = -262144")
        db.execute("begin")
        db.execute(_SQLITE, (jobs, now))
        for sql in _SQLITE_AFTER:
            db.execute(sql)
        db.executemany("insert or ignore into treadle_queue (name) values (?)", [(name,) for name in QUEUES])
        db.execute("commit")
        db.execute("pragma wal_checkpoint(truncate)")


async def into_postgres(db: Any, schema: str, jobs: int, now: float) -> None:
    """By a connection of asyncpg."""
    names = ", ".join(f"('{name}')" for name in QUEUES)
    for sql in (*_POSTGRES, f"insert into treadle.queue (name) values {names} on conflict do nothing"):
        await db.execute(sql.format(jobs=jobs, now=now).replace("treadle.", f"{schema}."), timeout=600)
    for table in ("job", "job_history", "job_error", "run", "answer"):
        await db.execute(f"vacuum analyze {schema}.{table}", timeout=600)
