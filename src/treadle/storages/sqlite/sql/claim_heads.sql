-- What lies ready in a queue, without walking over it: for each (task, priority) the first run_at, and the first one
-- after now. A loose scan of treadle_job_claim: each step seeks the next priority of the task, else the next task.
with recursive head (task, priority, run_at) as (
    select task, priority, run_at
    from (
        select task, priority, run_at
        from treadle_job indexed by treadle_job_claim
        where state = 'ready' and queue = ?1
        order by task, priority desc, run_at
        limit 1
    )
    union all
    select job.task, job.priority, job.run_at
    from head
    join treadle_job as job on job.seq = coalesce(
        (
            select seq
            from treadle_job indexed by treadle_job_claim
            where state = 'ready' and queue = ?1 and task = head.task and priority < head.priority
            order by priority desc, run_at
            limit 1
        ),
        (
            select seq
            from treadle_job indexed by treadle_job_claim
            where state = 'ready' and queue = ?1 and task > head.task
            order by task, priority desc, run_at
            limit 1
        )
    )
)
select
    task,
    priority,
    run_at,
    (
        select later.run_at
        from treadle_job as later indexed by treadle_job_claim
        where
            later.state = 'ready' and later.queue = ?1 and later.task = head.task
            and later.priority = head.priority and later.run_at > ?2
        order by later.run_at
        limit 1
    )
from head
