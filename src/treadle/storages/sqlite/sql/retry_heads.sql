-- What waits for its retry in a queue, without walking over it: for each task the first run_at after an instant. A loose
-- scan of treadle_job_retrying, as in claim_heads.
with recursive head (task) as (
    select (
        select task
        from treadle_job indexed by treadle_job_retrying
        where state = 'ready' and attempt > 0 and queue = ?1
        order by task
        limit 1
    )
    union all
    select (
        select task
        from treadle_job indexed by treadle_job_retrying
        where state = 'ready' and attempt > 0 and queue = ?1 and task > head.task
        order by task
        limit 1
    )
    from head
    where head.task is not null
)
select
    task,
    (
        select later.run_at
        from treadle_job as later indexed by treadle_job_retrying
        where
            later.state = 'ready' and later.attempt > 0 and later.queue = ?1 and later.task = head.task
            and later.run_at > ?2
        order by later.run_at
        limit 1
    )
from head
where task is not null
