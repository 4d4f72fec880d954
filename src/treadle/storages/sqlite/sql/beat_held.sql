select id, token, cancel_wanted
from treadle_job indexed by treadle_job_running
where state = 'running' and pod = ?1
