insert into treadle_share (queue, pod, share)
select ?1, ?2, ?3
where exists (select 1 from treadle_pod where id = ?2)
on conflict (pod, queue) do update
set share = excluded.share
