-- Claimable jobs of one (queue, task, priority) after a place in the order of time.
select run_at, seq
from treadle_job indexed by treadle_job_claim
where state = 'ready' and queue = ?1 and task = ?2 and priority = ?3 and (run_at, seq) > (?4, ?5)
order by run_at, seq
limit ?6
