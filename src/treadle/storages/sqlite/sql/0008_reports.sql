-- compatible_from: 1
--
-- What runs say of themselves: progress, checkpoints, and the lines of logs. A job that says nothing has no row in any
-- of them. `at` is seconds since the epoch; `n` numbers a job's lines, in microseconds since then.

create table treadle_job_progress (
    job_id  text    not null primary key,
    attempt integer not null,
    at      real    not null,
    entry   text    not null
) without rowid;

create table treadle_job_checkpoint (
    job_id  text    not null primary key,
    attempt integer not null,
    at      real    not null,
    value   text    not null
);

create table treadle_job_log (
    job_id  text    not null,
    n       integer not null,
    attempt integer not null,
    level   text    not null,
    text    text    not null,
    primary key (job_id, n)
) without rowid;
