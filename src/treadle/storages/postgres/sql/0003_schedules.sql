-- compatible_from: 2
--
-- Schedules: what to fire and when (`definition`, by compare-and-set on `version`), and how far each has come
-- (`progress`, written by every fire). Both are JSON text, which only the core reads.
create table treadle.schedule (
    name       text    not null,
    version    integer not null,
    definition text    not null,
    progress   text    not null,
    constraint schedule_pkey primary key (name)
) with (fillfactor = 50);

-- One row for each fire time that is settled; `job` is empty if it was skipped. Instants are seconds since the epoch, as
-- the core reckons: a time must come back as it went in, to the last bit. The index is what makes a second fire of the
-- same time impossible; one by hand has no time of its own.
create table treadle.fire (
    name    text    not null,
    fire_at float8  not null,
    at      float8  not null,
    outcome text    not null,
    job     text    not null default '',
    manual  boolean not null default false,
    constraint fire_pkey primary key (name, fire_at, job)
);

create unique index fire_once on treadle.fire (name, fire_at) where not manual;
