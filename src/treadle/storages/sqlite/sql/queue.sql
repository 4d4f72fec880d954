select {queue}
from treadle_queue
where name = ?1
