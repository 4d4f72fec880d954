-- What the pod says of itself rides along; null leaves what it said before.
update treadle_pod
set
    lease_until = ?2,
    beat_at = ?3,
    stats = coalesce(?4, stats),
    stacks = coalesce(?5, stacks),
    stacks_at = iif(?5 is null, stacks_at, ?3)
where id = ?1
