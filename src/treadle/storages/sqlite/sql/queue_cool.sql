insert into treadle_queue (name, version, cool_until, cool_exponent)
values (?1, 1, ?2, ?3)
on conflict (name) do update
set version = version + 1, cool_until = excluded.cool_until, cool_exponent = excluded.cool_exponent
