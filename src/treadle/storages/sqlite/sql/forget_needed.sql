select 1
where exists (
    select 1
    from treadle_pod
    where beat_at < ?1 and (lost or boot <> ?2 or lease_until <= ?3)
)
or exists (select 1 from treadle_held where until < ?1)
