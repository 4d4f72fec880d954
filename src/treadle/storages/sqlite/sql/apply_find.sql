-- What must be known of a job before a Change is written. A job that is not due yet is told as scheduled.
select
    seq,
    case when state = 'ready' and run_at > ?2 then 'scheduled' else state end,
    token,
    finished_token,
    cancel_wanted,
    pod,
    unique_key,
    error_count,
    queue,
    tags,
    kept
from treadle_job
where id = ?1
