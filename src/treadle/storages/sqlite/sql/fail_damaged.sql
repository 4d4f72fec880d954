-- By its number: the id may be what is damaged.
update treadle_job
set state = 'failed', finished_at = ?2, finished_token = token, deadline = null, cancel_wanted = 0
where seq = ?1
