select {job}
from treadle_job
where seq = ?1
