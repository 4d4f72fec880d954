-- Jobs of one (queue, task) that wait for their retry, after a place in the order of time.
select run_at, seq
from treadle_job indexed by treadle_job_retrying
where state = 'ready' and attempt > 0 and queue = ?1 and task = ?2 and (run_at, seq) > (?3, ?4)
order by run_at, seq
limit ?5
