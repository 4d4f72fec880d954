-- compatible_from: 2
--
-- Answers from outside: what jobs wait for, or have waited for. The id is made of a token that is never stored. Instants
-- are seconds since the epoch; without a kind it has not been given.

create table treadle.answer (
    id         text    not null,
    job_id     text    not null,
    claim      text    not null,
    timeout    float8  not null,
    opened_at  float8  not null,
    expires_at float8  not null,
    waits      boolean not null,
    kind       text,
    value      text,
    delay      float8,
    at         float8,
    constraint answer_pkey primary key (id)
);

create index answer_job on treadle.answer (job_id, opened_at);

create index answer_due on treadle.answer (expires_at) where waits;
