-- Running jobs whose pod has no live lease, or that are overdue. It reads the whole table of live jobs.
select
    {job},
    pod.card,
    date_part('epoch', pod.beat_at),
    case
        when pod.id is null or pod.lost or pod.gone or pod.boot <> $3::text then 'gone'
        when pod.lease_until <= coalesce(to_timestamp($2::float8), clock_timestamp()) then 'lease'
        else 'deadline'
    end
from treadle.job as job
left join treadle.pod as pod on pod.id = job.pod
where
    job.state = 'running'
    and (
        pod.id is null or pod.lost or pod.gone or pod.boot <> $3::text
        or pod.lease_until <= coalesce(to_timestamp($2::float8), clock_timestamp())
        or job.deadline < {now} - $4::float8 * interval '1 second'
    )
order by job.seq
limit $5::int
