-- No further than the cap, as with ended ones.
select count(*)
from (
    select 1
    from treadle_job indexed by treadle_job_waiting
    where state = 'waiting' and queue = ?1
    limit ?2
)
