-- A row, among the newest, that no code of ours can have written.
select id, state
from (
    select id, state, priority, run_at
    from treadle_job
    order by seq desc
    limit 10000
)
where
    state not in ('waiting', 'ready', 'running', 'succeeded', 'failed', 'cancelled')
    or typeof(priority) <> 'integer'
    or typeof(run_at) <> 'real'
limit 1
