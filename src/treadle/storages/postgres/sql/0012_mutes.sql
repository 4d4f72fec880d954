-- compatible_from: 2
--
-- Causes of failures that people know of, and need not see first.

create table treadle.mute (
    cause text   not null,
    at    float8 not null,
    until float8,
    who   text,
    constraint mute_pkey primary key (cause)
);
