-- Without rows that somebody damaged: nobody could speak for them.
select id, token, cancel_wanted
from treadle_job indexed by treadle_job_running
where state = 'running' and pod = ?1 and typeof(id) = 'text' and typeof(token) = 'text'
