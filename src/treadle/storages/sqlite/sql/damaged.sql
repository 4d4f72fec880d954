-- Ready rows of a (queue, task) that have no place in the order: nobody would ever claim them.
select seq
from treadle_job indexed by treadle_job_claim
where
    state = 'ready' and queue = ?1 and task = ?2
    and (typeof(priority) <> 'integer' or typeof(run_at) <> 'real')
limit 500
