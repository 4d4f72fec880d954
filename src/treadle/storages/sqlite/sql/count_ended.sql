-- No further than the cap: a number of ended jobs beyond it tells nobody anything.
select count(*)
from (
    select 1
    from treadle_job indexed by treadle_job_ended
    where queue = ?1 and state = ?2 and finished_at is not null
    limit ?3
)
