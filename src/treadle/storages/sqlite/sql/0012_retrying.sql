-- compatible_from: 1
--
-- Jobs that wait for their retry, and nothing else: no first attempt is ever in it, so that neither an insert, nor its
-- claim, nor its success writes to it. Without it they are looked for among all that is scheduled.

create index treadle_job_retrying on treadle_job (queue, task, run_at) where state = 'ready' and attempt > 0;
