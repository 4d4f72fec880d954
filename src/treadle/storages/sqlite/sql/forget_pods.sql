-- A pod that still seems to hold jobs is kept: its label is what the rescue tells people.
delete from treadle_pod
where
    beat_at < ?1 and (lost or boot <> ?2 or lease_until <= ?3)
    and not exists (
        select 1 from treadle_job where treadle_job.state = 'running' and treadle_job.pod = treadle_pod.id
    )
returning id, card, beat_at
