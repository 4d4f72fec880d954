-- Runs far beyond their deadline, as the beats have noted them.
select
    {job},
    pod.card,
    date_part('epoch', pod.beat_at)
from treadle.run as run
join treadle.job as job on job.id = run.job_id and job.token = run.token
left join treadle.pod as pod on pod.id = job.pod
where job.state = 'running' and run.deadline < {now} - $2::float8 * interval '1 second'
order by run.deadline
limit $3::int
