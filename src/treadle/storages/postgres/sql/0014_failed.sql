-- compatible_from: 2
--
-- What has failed or was cancelled, by queue: people look for it so, and pages count it. A success is not in it, so that
-- a finish pays for it only where something went wrong.

create index job_history_queue on treadle.job_history (queue, state, finished_at) where state <> 'succeeded';
