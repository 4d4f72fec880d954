select count(*)
from (
    select 1
    from treadle_job indexed by treadle_job_claim
    where state = 'ready' and queue = ?1 and task = ?2 and priority = ?3 and run_at <= ?4
    limit ?5
)
