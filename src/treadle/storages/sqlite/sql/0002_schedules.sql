-- compatible_from: 1
--
-- Schedules: what to fire and when (`definition`, by compare-and-set on `version`), and how far each has come
-- (`progress`, written by every fire). Both are JSON text, which only the core reads.
create table treadle_schedule (
    name       text    not null primary key,
    version    integer not null,
    definition text    not null,
    progress   text    not null
) without rowid;

-- One row for each fire time that is settled; `job` is empty if it was skipped. The index is what makes a second fire of
-- the same time impossible; one by hand has no time of its own.
create table treadle_fire (
    name    text    not null,
    fire_at real    not null,
    at      real    not null,
    outcome text    not null,
    job     text    not null default '',
    manual  integer not null default 0,
    primary key (name, fire_at, job)
) without rowid;

create unique index treadle_fire_once on treadle_fire (name, fire_at) where not manual;
