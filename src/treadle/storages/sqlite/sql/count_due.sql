select
    (
        select count(*)
        from treadle_job indexed by treadle_job_claim
        where state = 'ready' and queue = ?1 and task = ?2 and priority = ?3 and run_at <= ?4
    ),
    (
        select count(*)
        from treadle_job indexed by treadle_job_claim
        where state = 'ready' and queue = ?1 and task = ?2 and priority = ?3 and run_at > ?4
    )
