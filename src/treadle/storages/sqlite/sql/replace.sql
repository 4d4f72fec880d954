-- `on_conflict="replace"`: the holder of a unique key that has not started gets the new request's content.
update treadle_job
set
    args = ?1, format = ?2, run_at = ?3, priority = ?4, tags = ?5, meta = ?6, reason = ?7,
    attempt = 0, crashes = 0
where seq = ?8
