-- Written once per run at most: a slot that is known already rests.
update treadle_job
set slot = ?1
where id = ?2 and token = ?3 and state = 'running' and slot is not ?1
