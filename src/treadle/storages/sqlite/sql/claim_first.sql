-- The same where no other task has to be read beside it: their numbers, as one text.
select json_group_array(seq)
from (
    select seq
    from treadle_job indexed by treadle_job_claim
    where state = 'ready' and queue = ?1 and task = ?2 and priority = ?3 and run_at <= ?4
    order by run_at, seq
    limit ?5
)
