-- The live job that holds a unique key. The states are spelt as in the index, or it would not be used.
select id
from treadle_job
where unique_key = ?1 and state in ('waiting', 'ready', 'running')
