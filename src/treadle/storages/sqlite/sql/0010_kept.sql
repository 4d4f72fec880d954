-- compatible_from: 1
--
-- `on_conflict="keep_last"`: the request that is kept behind a job under way, as JSON, until its run ends. Nearly every
-- row has none, and then it costs nothing. Use it once every pod knows it: an older one would end the run without it.

alter table treadle_job add column kept text;

create index treadle_job_kept on treadle_job (json_extract(kept, '$.id')) where kept is not null;
