-- compatible_from: 2
--
-- Rate limits and named locks.

-- Token buckets: those that somebody declared, and one for each queue with a rate. `tokens` were there at the instant
-- `at` (seconds since the epoch, as the core reckons); `leases` is a JSON array of [amount, until]. The row is updated
-- often and never grows: most updates stay in its page.
create table treadle.rate_limit (
    scope    text    not null,
    version  integer not null default 1,
    capacity integer not null,
    refill   float8  not null,
    tokens   float8  not null,
    at       float8  not null,
    leases   text    not null default '[]',
    constraint rate_limit_pkey primary key (scope)
) with (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

create table treadle.named_lock (
    name  text        not null,
    owner text        not null default '',
    fence bigint      not null default 0,
    until timestamptz not null default 'epoch',
    boot  text        not null default '',
    constraint named_lock_pkey primary key (name)
) with (fillfactor = 50);

-- It outlives the locks, so that no fence comes again.
create sequence treadle.lock_fence;
