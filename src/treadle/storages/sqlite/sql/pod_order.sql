update treadle_pod
set
    wish = coalesce(?4, wish),
    wish_by = iif(?4 is null, wish_by, ?5),
    stacks_asked = coalesce(?6, stacks_asked)
where id = ?1 and not lost and boot = ?2 and lease_until > ?3
