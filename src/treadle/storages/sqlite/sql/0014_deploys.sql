-- compatible_from: 1
--
-- Versions of the user's code that workers have registered with: when each was first seen, and when last.

create table treadle_deploy (
    version  text not null primary key,
    first_at real not null,
    seen_at  real not null
) without rowid;
