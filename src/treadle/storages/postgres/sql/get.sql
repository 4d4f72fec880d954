-- One statement, one snapshot: a job that moves between the tables is in exactly one of them.
select {job}
from treadle.job as job
where job.id = any ($2::uuid[])
union all
select {history}
from treadle.job_history as job
where job.id = any ($2::uuid[])
