-- compatible_from: 1
--
-- History: roll-ups of what pods have counted, readings of what they have measured, and the lines of timelines that a
-- job's row forgets. `entry` is JSON; `at` is seconds since the epoch.

create table treadle_rollup (
    resolution integer not null,
    at         real    not null,
    queue      text    not null,
    task       text    not null,
    pod        text    not null,
    entry      text    not null,
    primary key (resolution, at, queue, task, pod)
) without rowid;

create table treadle_reading (
    resolution integer not null,
    at         real    not null,
    pod        text    not null,
    entry      text    not null,
    primary key (resolution, at, pod)
) without rowid;

create table treadle_event (
    job_id text not null,
    id     text not null,
    at     real not null,
    entry  text not null,
    primary key (job_id, id)
) without rowid;

create index treadle_event_at on treadle_event (at);
