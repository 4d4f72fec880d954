-- compatible_from: 1
--
-- Live settings of queues, and what people say of their tasks and queues. Settings that no statement tests are one JSON
-- text (null: all built in).
alter table treadle_queue add column settings text;

create table treadle_catalog (
    kind       text not null,
    name       text not null,
    descriptor text not null,
    seen_at    real not null,
    primary key (kind, name)
) without rowid;
