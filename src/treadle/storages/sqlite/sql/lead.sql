-- Take or renew the leadership. The term rises with every change of holder.
update treadle_leader
set term = term + (holder <> ?1), holder = ?1, until = ?3, boot = ?4
where holder in ('', ?1) or until <= ?2 or boot <> ?4
returning term
