-- compatible_from: 1
--
-- Acts upon many jobs, and the audit. Both are read by people and written a few times a minute: what is not searched
-- for is kept as one text.
create table treadle_operation (
    id          text    not null primary key,
    state       text    not null,
    version     integer not null,
    created_at  real    not null,
    finished_at real,
    body        text    not null
) without rowid;

create table treadle_audit (
    id   text not null primary key,
    at   real not null,
    body text not null
) without rowid;

create index treadle_audit_at on treadle_audit (at, id);
