select {job}
from treadle_job
where id = ?1
