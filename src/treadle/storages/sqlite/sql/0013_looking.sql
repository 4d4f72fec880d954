-- compatible_from: 1
--
-- For those who look: jobs that failed after a crash, and the jobs that one job has made. No job that ends well without
-- a crash, and was made by no other, is ever in either of them: see docs/adr/0023 for what they cost and save.

create index treadle_job_poison on treadle_job (queue, finished_at, crashes) where state = 'failed' and crashes > 0;

create index treadle_job_parent on treadle_job (json_extract(meta, '$."treadle:parent"'))
    where instr(meta, '"treadle:parent"') and json_valid(meta);
