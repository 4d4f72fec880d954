-- A row, among the newest, that no code of ours can have written.
select id, state
from (
    select id, state, queue, task, priority, run_at
    from treadle_job
    order by seq desc
    limit 1000
)
where
    state not in ('waiting', 'ready', 'running', 'succeeded', 'failed', 'cancelled')
    or typeof(id) <> 'text'
    or typeof(queue) <> 'text'
    or typeof(task) <> 'text'
    or typeof(priority) <> 'integer'
    or typeof(run_at) <> 'real'
limit 1
