-- A live job has ended: (now, id, state, result, finished_token, cause).
with ended as (
    delete from treadle.job where id = $2::uuid returning *
)
insert into treadle.job_history (
    seq, id, run_at, created_at, started_at, finished_at, timeout, max_attempts, priority, format, pinned, attempt,
    crashes, snoozes, throttles, error_count, state, pod, slot, token, finished_token, queue, task, cause, unique_key,
    tags, meta, reason, warning, args, result
)
select
    seq, id, run_at, created_at, started_at, {clock}, timeout, max_attempts, priority, format, pinned, attempt, crashes,
    snoozes, throttles, error_count, $3::text, pod, slot, token, coalesce($5::text, finished_token), queue, task,
    $6::text, unique_key, tags, meta, reason, warning, args, $4::text
from ended
