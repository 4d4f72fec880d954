select id, card, stats, wish
from treadle_pod
where not lost and boot = ?1 and lease_until > ?2
