-- `on_conflict="replace"`: the holder of a unique key that has not started gets the new request's content.
update treadle_job
set args = ?1, run_at = ?2, priority = ?3, tags = ?4, meta = ?5, reason = ?6, attempt = 0, crashes = 0
where seq = ?7
