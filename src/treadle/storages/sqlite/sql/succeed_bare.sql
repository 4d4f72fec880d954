-- Many successes of one claim at once that bring neither a result nor a warning, as most do: half the price of the
-- others, whose values make a table of their own.
update treadle_job indexed by treadle_job_id
set
    state = 'succeeded',
    result = null,
    warning = null,
    finished_at = ?1,
    finished_token = ?2,
    deadline = null,
    cancel_wanted = 0
where
    id in (select value from json_each(?3))
    and token = ?2
    and state = 'running'
    and kept is null
