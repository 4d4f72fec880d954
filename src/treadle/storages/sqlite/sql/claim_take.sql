-- The state is tested again where it is written; the plus keeps the claim's index out of it: rows come by their seq.
update treadle_job
set
    state = 'running',
    pod = ?1,
    slot = null,
    token = ?2,
    started_at = ?3,
    deadline = case when timeout <> 0 then ?3 + timeout end,
    attempt = attempt + 1
where seq in (select value from json_each(?4)) and +state = 'ready'
returning
    seq, id, task, queue, state, args, format, priority, run_at, created_at, attempt, max_attempts, timeout, pinned,
    tags, meta, reason, unique_key, pod, slot, token, started_at, deadline, finished_at, crashes, snoozes, throttles,
    cancel_wanted, result, warning, error_count
