select {job}
from treadle_job indexed by treadle_job_running
where state = 'running' and pod = ?1 and token = ?2
order by priority desc, run_at, seq
