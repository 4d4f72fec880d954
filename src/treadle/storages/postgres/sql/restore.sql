-- An ended job lives again, with its place in the order of insertion.
with revived as (
    delete from treadle.job_history where id = $1::uuid returning *
)
insert into treadle.job (
    seq, id, run_at, created_at, started_at, timeout, max_attempts, priority, format, pinned, attempt, crashes, snoozes,
    throttles, error_count, state, pod, slot, token, finished_token, queue, task, unique_key, tags, meta, reason,
    warning, args
)
overriding system value
select
    seq, id, run_at, created_at, started_at, timeout, max_attempts, priority, format, pinned, attempt, crashes, snoozes,
    throttles, error_count, 'ready', pod, slot, token, finished_token, queue, task, unique_key, tags, meta, reason,
    warning, args
from revived
