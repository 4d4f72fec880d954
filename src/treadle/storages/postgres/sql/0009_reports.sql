-- compatible_from: 2
--
-- What runs say of themselves: progress, checkpoints, and the lines of logs. A job that says nothing has no row in any
-- of them. `at` is seconds since the epoch; `n` numbers a job's lines, in microseconds since then.

-- Written up to once a second for each run that reports, in place: pages keep room for the next version, and nothing
-- that changes is indexed.
create table treadle.job_progress (
    job_id  text    not null,
    attempt integer not null,
    at      float8  not null,
    entry   text    not null,
    constraint job_progress_pkey primary key (job_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

create table treadle.job_checkpoint (
    job_id  text    not null,
    attempt integer not null,
    at      float8  not null,
    value   text    not null,
    constraint job_checkpoint_pkey primary key (job_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

create table treadle.job_log (
    job_id  text    not null,
    n       bigint  not null,
    attempt integer not null,
    level   text    not null,
    text    text    not null,
    constraint job_log_pkey primary key (job_id, n)
);
