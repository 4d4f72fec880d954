-- compatible_from: 2
--
-- Versions of the user's code that workers have registered with: when each was first seen, and when last.

create table treadle.deploy (
    version  text collate "C" not null,
    first_at float8           not null,
    seen_at  float8           not null,
    constraint deploy_pkey primary key (version)
);

-- As those of 0017; a version has at most 64 characters.
alter table treadle.deploy add constraint deploy_bounds check (
    least(first_at, seen_at) >= -62135596800 and greatest(first_at, seen_at) < 253402300800
    and octet_length(version) <= 256
) not valid;
