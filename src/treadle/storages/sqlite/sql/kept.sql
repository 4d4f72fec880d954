-- The request with this id that is kept behind a job, and that job.
select kept, id
from treadle_job
where json_extract(kept, '$.id') = ?1 and kept is not null
