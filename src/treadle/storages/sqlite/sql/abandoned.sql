-- Running jobs whose pod is not among the live ones (?1), or that are overdue. A row without a name cannot be rescued.
select {job}
from treadle_job indexed by treadle_job_running
where
    state = 'running' and typeof(id) = 'text'
    and (pod is null or pod not in (select value from json_each(?1)) or deadline + ?2 < ?3)
order by seq
limit ?4
