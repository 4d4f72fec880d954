select 1
from treadle_pod
where id = ?1 and not lost and boot = ?2 and lease_until > ?3
