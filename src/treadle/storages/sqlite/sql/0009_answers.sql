-- compatible_from: 1
--
-- Answers from outside: what jobs wait for, or have waited for. The id is made of a token that is never stored. Instants
-- are seconds since the epoch; without a kind it has not been given.

create table treadle_answer (
    id         text    not null primary key,
    job_id     text    not null,
    claim      text    not null,
    timeout    real    not null,
    opened_at  real    not null,
    expires_at real    not null,
    waits      integer not null,
    kind       text,
    value      text,
    delay      real,
    at         real
);

create index treadle_answer_job on treadle_answer (job_id, opened_at);

create index treadle_answer_due on treadle_answer (expires_at) where waits;
