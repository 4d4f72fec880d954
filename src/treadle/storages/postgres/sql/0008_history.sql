-- compatible_from: 2
--
-- History: roll-ups of what pods have counted, readings of what they have measured, and the lines of timelines that a
-- job's row forgets. `entry` is JSON; `at` is seconds since the epoch.

-- A pod writes the row of the running minute every two seconds, in place: pages keep room for the next version, and
-- nothing that changes is indexed.
create table treadle.rollup (
    resolution integer not null,
    at         float8  not null,
    queue      text    not null,
    task       text    not null,
    pod        text    not null,
    entry      text    not null,
    constraint rollup_pkey primary key (resolution, at, queue, task, pod)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

create table treadle.reading (
    resolution integer not null,
    at         float8  not null,
    pod        text    not null,
    entry      text    not null,
    constraint reading_pkey primary key (resolution, at, pod)
);

create table treadle.event (
    job_id text   not null,
    id     text   not null,
    at     float8 not null,
    entry  text   not null,
    constraint event_pkey primary key (job_id, id)
);

create index event_at on treadle.event (at);
