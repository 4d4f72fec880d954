-- The state is tested again where it is written; the plus keeps the claim's index out of it: rows come by their seq.
-- Columns that most jobs leave empty are not read here, only whether there is any (the last one): reading thirty
-- columns instead of twelve costs more than the update. ?5 is the queue's live timeout: it replaces one that the caller
-- did not choose, for this attempt.
update treadle_job
set
    state = 'running',
    pod = ?1,
    slot = null,
    token = ?2,
    started_at = ?3,
    deadline = ?3 + nullif(case when ?5 is null or pinned then timeout else ?5 end, 0),
    attempt = attempt + 1
where seq in (select value from json_each(?4)) and +state = 'ready'
returning
    seq, id, task, args, format, priority, run_at, created_at, attempt, max_attempts,
    case when ?5 is null or pinned then timeout else ?5 end,
    pinned or error_count or crashes or snoozes or throttles or cancel_wanted or tags is not null
    or meta is not null or reason is not null or unique_key is not null or result is not null
    or warning is not null
