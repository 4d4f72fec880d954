-- The success that goes on holding a unique key until its period ends.
select job.id
from treadle_held as held
join treadle_job as job on job.id = held.id
where held.key = ?1 and held.until > ?2 and job.state = 'succeeded'
