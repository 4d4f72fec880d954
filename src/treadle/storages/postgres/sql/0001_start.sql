-- compatible_from: 1
--
-- Tables. Functions are in the next file. The schema is written as `treadle` and may have another name.

-- Live jobs, and nothing else: an ended job is moved to job_history by the statement that ends it, so that this table
-- and its indexes stay as small as the work that is left. `state` says 'ready' for scheduled and ready alike: run_at
-- tells them apart.
--
-- A claim must be a HOT update (measured: 18,520 of 20,000 updates, and none with an index on running rows): nothing
-- that a claim writes (state, attempt, pod, slot, token, started_at, deadline) may be in an index or in an index's
-- predicate, and pages keep room for the second version. These columns stand together, so that the log holds only them.
create table treadle.job (
    seq            bigint      not null generated always as identity,
    id             uuid        not null,
    run_at         timestamptz not null default clock_timestamp(),
    created_at     timestamptz not null default clock_timestamp(),
    timeout        float8,
    max_attempts   integer,
    priority       smallint    not null default 0,
    format         smallint    not null default 1,
    pinned         boolean     not null default false,
    cancel_wanted  boolean     not null default false,
    attempt        integer     not null default 0,
    crashes        integer     not null default 0,
    snoozes        integer     not null default 0,
    throttles      integer     not null default 0,
    error_count    integer     not null default 0,
    started_at     timestamptz,
    deadline       timestamptz,
    state          text        not null default 'ready',
    pod            text,
    slot           text,
    token          text,
    finished_token text,
    queue          text        not null,
    task           text        not null,
    unique_key     text,
    tags           text[],
    meta           text,
    reason         text,
    warning        text,
    args           text        not null default '{}',
    constraint job_pkey primary key (id),
    constraint job_state check (state in ('waiting', 'ready', 'running'))
) with (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- The order of claiming. It ends in `seq`, not in `id`: a planner that knows an empty table only would walk this index
-- to look for ids (measured: 1,020 ms instead of 10 for a finish of 1,000).
create index job_lane on treadle.job (queue, priority, run_at, seq);

create unique index job_unique on treadle.job (unique_key) where unique_key is not null;

create index job_tags on treadle.job using gin (tags) where tags is not null;

-- Ended jobs. One plain table; the pruner deletes from it in batches.
create table treadle.job_history (
    seq            bigint      not null,
    id             uuid        not null,
    run_at         timestamptz not null,
    created_at     timestamptz not null,
    started_at     timestamptz,
    finished_at    timestamptz not null,
    timeout        float8,
    max_attempts   integer,
    priority       smallint    not null,
    format         smallint    not null,
    pinned         boolean     not null,
    attempt        integer     not null,
    crashes        integer     not null,
    snoozes        integer     not null,
    throttles      integer     not null,
    error_count    integer     not null,
    state          text        not null,
    pod            text,
    slot           text,
    token          text,
    finished_token text,
    queue          text        not null,
    task           text        not null,
    cause          text,
    unique_key     text,
    tags           text[],
    meta           text,
    reason         text,
    warning        text,
    args           text        not null,
    result         text,
    constraint job_history_pkey primary key (id),
    constraint job_history_state check (state in ('succeeded', 'failed', 'cancelled'))
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

create index job_history_finished on treadle.job_history (finished_at);

create index job_history_state on treadle.job_history (state, finished_at) where state <> 'succeeded';

create index job_history_cause on treadle.job_history (cause, finished_at) where cause is not null;

create index job_history_tags on treadle.job_history using gin (tags) where tags is not null;

-- What most jobs never have is kept aside. `n` counts a job's errors from 1; the last 32 are kept.
create table treadle.job_error (
    job_id   uuid        not null,
    n        integer     not null,
    ended_at timestamptz not null,
    entry    text        not null,
    constraint job_error_pkey primary key (job_id, n)
);

-- Unique keys that a success goes on holding until its period ends.
create table treadle.held (
    key   text        not null,
    id    uuid        not null,
    until timestamptz not null,
    constraint held_pkey primary key (key)
);

create table treadle.queue (
    name          text    not null,
    version       integer not null default 0,
    paused        boolean not null default false,
    paused_by     text,
    paused_at     timestamptz,
    pause_reason  text,
    paused_until  timestamptz,
    max_workers   integer,
    cool_until    timestamptz,
    cool_exponent integer not null default 0,
    constraint queue_pkey primary key (name)
);

-- Which priorities a queue has ever had: a claim must know its lanes without looking for them among the jobs.
create table treadle.lane (
    queue    text     not null,
    priority smallint not null,
    constraint lane_pkey primary key (queue, priority)
);

-- `gone`: it signed off, and is kept only until somebody has looked whether it left jobs behind. `swept`: that was done.
create table treadle.pod (
    n           bigint      not null generated always as identity,
    id          text        not null,
    card        text        not null,
    started_at  timestamptz not null,
    beat_at     timestamptz not null,
    lease_until timestamptz not null,
    boot        text        not null default '',
    lost        boolean     not null default false,
    gone        boolean     not null default false,
    swept       boolean     not null default false,
    constraint pod_pkey primary key (id)
) with (fillfactor = 50);

create table treadle.leader (
    one    integer     not null default 1,
    holder text        not null default '',
    term   bigint      not null default 0,
    until  timestamptz not null default '-infinity',
    boot   text        not null default '',
    constraint leader_pkey primary key (one),
    constraint leader_one check (one = 1)
) with (fillfactor = 50);

insert into treadle.leader default values;

-- Runs that were under way at their pod's last beat. What an index on running jobs would say, a beat later, and without
-- its price.
create table treadle.run (
    job_id   uuid not null,
    pod      text not null,
    token    text not null,
    deadline timestamptz,
    constraint run_pkey primary key (job_id)
);

create index run_pod on treadle.run (pod);
