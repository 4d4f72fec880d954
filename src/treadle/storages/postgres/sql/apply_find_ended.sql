select
    date_part('epoch', {clock}),
    job.state, job.token, job.finished_token, false, job.pod, job.unique_key, job.error_count, job.queue, job.task,
    null::text
from treadle.job_history as job
where job.id = $2::uuid
for update
