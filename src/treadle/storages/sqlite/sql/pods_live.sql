select count(*)
from treadle_pod
where not lost and boot = ?1 and lease_until > ?2
