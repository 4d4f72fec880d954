-- compatible_from: 2
--
-- The jobs that one job has made, for those who look at it. Jobs that no other has made are not in it, and nothing that
-- happens to a job later changes it. The words are searched for, not parsed: a damaged text must not refuse a row.

create index job_parent on treadle.job (substring(meta from '"treadle:parent"\s*:\s*"([^"]+)"'))
where strpos(meta, '"treadle:parent"') > 0;

create index job_history_parent on treadle.job_history (substring(meta from '"treadle:parent"\s*:\s*"([^"]+)"'))
where strpos(meta, '"treadle:parent"') > 0;
