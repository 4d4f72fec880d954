-- What must be known of a live job before a Change is written; the row is locked until the end of the transaction.
select
    date_part('epoch', {clock}),
    case when job.state = 'ready' and job.run_at > {now} then 'scheduled' else job.state end,
    job.token, job.finished_token, job.cancel_wanted, job.pod, job.unique_key, job.error_count, job.queue, job.task,
    job.kept
from treadle.job as job
where job.id = $2::uuid
for update
