-- compatible_from: 1
--
-- Causes of failures that people know of, and need not see first.

create table treadle_mute (
    cause text not null primary key,
    at    real not null,
    until real,
    who   text
) without rowid;
