select
    id,
    card,
    started_at,
    beat_at,
    lease_until,
    boot,
    lost,
    (select count(*) from treadle_job where treadle_job.state = 'running' and treadle_job.pod = treadle_pod.id),
    stats,
    wish,
    wish_by,
    stacks,
    stacks_at,
    stacks_asked
from treadle_pod
order by rowid
