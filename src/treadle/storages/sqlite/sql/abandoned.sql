-- Running jobs whose pod is not among the live ones (?1), or that are overdue.
select
    seq, id, task, queue, state, args, format, priority, run_at, created_at, attempt, max_attempts, timeout, pinned,
    tags, meta, reason, unique_key, pod, slot, token, started_at, deadline, finished_at, crashes, snoozes, throttles,
    cancel_wanted, result, warning, error_count
from treadle_job indexed by treadle_job_running
where state = 'running' and (pod is null or pod not in (select value from json_each(?1)) or deadline < ?2)
order by seq
limit ?3
