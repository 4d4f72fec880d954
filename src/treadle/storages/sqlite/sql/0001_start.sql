-- compatible_from: 1
--
-- Tables carry the prefix because Treadle may live inside its user's own database file: that is what makes an enqueue
-- inside the user's transaction possible.

-- One row per job, from insert to removal; ended jobs stay in place. `state` says 'ready' for scheduled and ready
-- alike: run_at tells them apart. Large columns come last, so that the small ones are found on the row's first page.
create table treadle_job (
    seq            integer primary key,
    id             text    not null,
    queue          text    not null,
    task           text    not null,
    state          text    not null,
    priority       integer not null,
    run_at         real    not null,
    created_at     real    not null,
    attempt        integer not null default 0,
    max_attempts   integer,
    timeout        real,
    pinned         integer not null default 0,
    format         integer not null,
    unique_key     text,
    pod            text,
    slot           text,
    token          text,
    started_at     real,
    deadline       real,
    finished_at    real,
    finished_token text,
    crashes        integer not null default 0,
    snoozes        integer not null default 0,
    throttles      integer not null default 0,
    cancel_wanted  integer not null default 0,
    error_count    integer not null default 0,
    tags           text,
    reason         text,
    meta           text,
    warning        text,
    args           text    not null,
    result         text
);

create unique index treadle_job_id on treadle_job (id);

-- The claim reads it task by task: jobs of tasks that nobody here knows are never walked over, however many there are.
-- The row id, which every index entry ends with, keeps the order of insertion among equals.
create index treadle_job_claim on treadle_job (queue, task, priority desc, run_at) where state = 'ready';

create index treadle_job_waiting on treadle_job (queue) where state = 'waiting';

create index treadle_job_running on treadle_job (pod) where state = 'running';

create index treadle_job_ended on treadle_job (queue, state, finished_at) where finished_at is not null;

create unique index treadle_job_unique on treadle_job (unique_key)
    where unique_key is not null and state in ('waiting', 'ready', 'running');

-- What most jobs never have is kept aside. `n` counts a job's errors from 1; the last 32 are kept.
create table treadle_job_error (
    seq   integer not null,
    n     integer not null,
    entry text    not null
);

create unique index treadle_job_error_n on treadle_job_error (seq, n);

create table treadle_job_tag (
    tag text    not null,
    seq integer not null,
    primary key (tag, seq)
) without rowid;

-- Unique keys that a success goes on holding until its period ends.
create table treadle_held (
    key   text not null primary key,
    id    text not null,
    until real not null
) without rowid;

create table treadle_queue (
    name          text    not null primary key,
    version       integer not null default 0,
    paused        integer not null default 0,
    paused_by     text,
    paused_at     real,
    pause_reason  text,
    paused_until  real,
    max_workers   integer,
    cool_until    real,
    cool_exponent integer not null default 0
) without rowid;

-- Leases live by the steady clock, which means nothing after a boot: `boot` says in which run of the machine.
create table treadle_pod (
    id          text    not null primary key,
    card        text    not null,
    started_at  real    not null,
    beat_at     real    not null,
    lease_until real    not null,
    boot        text    not null,
    lost        integer not null default 0
);

create table treadle_leader (
    one    integer primary key check (one = 1),
    holder text    not null,
    term   integer not null,
    until  real    not null,
    boot   text    not null
);

insert into treadle_leader (one, holder, term, until, boot) values (1, '', 0, 0.0, '');
