-- No index leads to running jobs, and this is asked after a lost answer only.
select {job}
from treadle.job as job
where job.state = 'running' and job.pod = $2::text and job.token = $3::text
order by job.priority desc, job.run_at, job.seq
