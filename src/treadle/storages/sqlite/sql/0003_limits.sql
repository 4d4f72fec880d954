-- compatible_from: 1
--
-- Rate limits and named locks.

-- Token buckets: those that somebody declared, and one for each queue with a rate. `tokens` were there at the instant
-- `at`; `leases` is a JSON array of [amount, until].
create table treadle_limit (
    scope    text    not null primary key,
    version  integer not null,
    capacity integer not null,
    refill   real    not null,
    tokens   real    not null,
    at       real    not null,
    leases   text    not null
) without rowid;

-- As with pods, `until` is of the steady clock, in the run of the machine that `boot` names.
create table treadle_lock (
    name  text    not null primary key,
    owner text    not null,
    fence integer not null,
    until real    not null,
    boot  text    not null
) without rowid;

-- The last fence that any lock was given: it outlives the locks, so that no fence comes again.
create table treadle_fence (
    one  integer primary key check (one = 1),
    last integer not null
);

insert into treadle_fence (one, last) values (1, 0);
