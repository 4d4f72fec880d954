-- Many successes at once. A row is written only if it is still running under the token that speaks for it, and nothing
-- is kept behind it.
update treadle_job indexed by treadle_job_id
set
    state = 'succeeded',
    result = finish.column3,
    warning = finish.column4,
    finished_at = ?1,
    finished_token = finish.column2,
    deadline = null,
    cancel_wanted = 0
from (values) as finish
where
    treadle_job.id = finish.column1
    and treadle_job.token = finish.column2
    and treadle_job.state = 'running'
    and treadle_job.kept is null
