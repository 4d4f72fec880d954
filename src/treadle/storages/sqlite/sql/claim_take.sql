-- The state is tested again where it is written; the plus keeps the claim's index out of it: rows come by their seq.
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
