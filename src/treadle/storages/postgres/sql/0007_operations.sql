-- compatible_from: 2
--
-- Acts upon many jobs, and the audit. Both are read by people and written a few times a minute: what is not searched
-- for is kept as one text. Instants are seconds since the epoch, as in the text.
create table treadle.operation (
    id          text    not null,
    state       text    not null,
    version     integer not null,
    created_at  float8  not null,
    finished_at float8,
    body        text    not null,
    constraint operation_pkey primary key (id)
);

create table treadle.audit (
    id   text   not null,
    at   float8 not null,
    body text   not null,
    constraint audit_pkey primary key (id)
);

create index audit_at on treadle.audit (at, id);
