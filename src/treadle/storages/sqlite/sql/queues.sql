select {queue}
from treadle_queue
order by name
