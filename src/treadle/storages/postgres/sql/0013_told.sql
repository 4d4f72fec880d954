-- compatible_from: 2
--
-- A procedure, because it commits: a lone job is written, and those who wait are told in the same round trip but not in
-- the same transaction. A NOTIFY takes one lock of the whole database for the length of its commit; the second commit has
-- written nothing and does not wait for the disk, so the lock is held for an instant.
create procedure treadle.insert_told_1(
    p_now float8,
    p_id text, p_queue text, p_task text, p_args text, p_priority int2, p_delay float8, p_run_at float8,
    p_max_attempts int4, p_timeout float8, p_pinned boolean, p_format int2, p_tags text, p_meta text, p_reason text
)
language plpgsql
as $$
begin
    perform treadle.insert_one_1(
        p_now, p_id, p_queue, p_task, p_args, p_priority, p_delay, p_run_at, p_max_attempts, p_timeout, p_pinned,
        p_format, p_tags, p_meta, p_reason
    );
    commit;
    perform set_config('synchronous_commit', 'off', true), pg_notify('treadle:treadle_schema_name', p_queue);
end
$$;
