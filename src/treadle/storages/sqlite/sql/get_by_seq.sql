select {job}
from treadle_job
where seq in (select value from json_each(?1))
