-- Roles for a schema that several programs share. Run it as the owner of the database after the first migration, and
-- again after every migration: new tables and functions get their grants, and old grants go. Programs of the version
-- before may need rights that this takes away: upgrade them first, then run it. Give each program a login role that is a
-- member of one of these.
--
--   treadle_owner     owns the schema and everything in it; its functions have its rights, and no login should be it
--   treadle_migrator  may run `treadle db migrate` (a member of the owner, and nothing more)
--   treadle_worker    runs pods and operates: everything but DDL, and of the audit it only adds and reads
--   treadle_enqueuer  may enqueue, and ask for a job whose id it has; it has no rights on tables
--   treadle_viewer    may look at everything but what jobs carry: arguments, results, metadata, logs, texts of errors

do $$
declare
    v_role text;
begin
    foreach v_role in array array[
        'treadle_owner', 'treadle_migrator', 'treadle_worker', 'treadle_enqueuer', 'treadle_viewer'
    ] loop
        if not exists (select from pg_roles where rolname = v_role) then
            execute format('create role %I nologin', v_role);
        end if;
    end loop;
end
$$;

grant treadle_owner to treadle_migrator;

do $$
declare
    v_table record;
    v_function record;
begin
    execute format('alter schema %I owner to treadle_owner', 'treadle_schema_name');
    execute format('grant create on database %I to treadle_owner', current_database());
    for v_table in
        select c.oid::regclass as name from pg_class as c
        where
            c.relnamespace = 'treadle_schema_name'::regnamespace
            -- A sequence that belongs to a column goes with its table.
            and (c.relkind in ('r', 'v') or (c.relkind = 'S' and not exists (
                select from pg_depend as d where d.objid = c.oid and d.deptype in ('a', 'i')
            )))
    loop
        execute format('alter table %s owner to treadle_owner', v_table.name);
    end loop;
    for v_function in
        select p.oid::regprocedure as name from pg_proc as p where p.pronamespace = 'treadle_schema_name'::regnamespace
    loop
        execute format('alter routine %s owner to treadle_owner', v_function.name);
        execute format('revoke all on routine %s from public', v_function.name);
    end loop;
end
$$;

-- All at once: no program meets the time between the old grants and the new.
begin;

revoke all on schema treadle_schema_name from public;

revoke all on all tables in schema treadle_schema_name from treadle_worker, treadle_enqueuer, treadle_viewer;

revoke all on all sequences in schema treadle_schema_name from treadle_worker, treadle_enqueuer, treadle_viewer;

revoke all on all routines in schema treadle_schema_name from treadle_worker, treadle_enqueuer, treadle_viewer;

grant usage on schema treadle_schema_name to treadle_worker, treadle_enqueuer, treadle_viewer;

-- Which version the schema has is no secret, and every program must know it.
grant select on treadle.schema_version to treadle_worker, treadle_enqueuer, treadle_viewer;

-- Workers

grant select, insert, update, delete on
    treadle.job, treadle.job_history, treadle.job_error, treadle.held, treadle.queue, treadle.lane, treadle.pod,
    treadle.leader, treadle.run, treadle.share, treadle.catalog,
    treadle.rate_limit, treadle.named_lock, treadle.schedule, treadle.fire, treadle.rollup, treadle.reading, treadle.event,
    treadle.operation, treadle.job_progress, treadle.job_checkpoint, treadle.job_log, treadle.answer, treadle.mute,
    treadle.deploy
to treadle_worker;

-- Lines are added; those of 90 days go by prune_audit_1.
grant select, insert on treadle.audit to treadle_worker;

grant execute on all routines in schema treadle_schema_name to treadle_worker;

-- `treadle db copy` keeps the order of the jobs that it brings.
grant usage, select, update on all sequences in schema treadle_schema_name to treadle_worker;

-- Enqueuers: functions alone. All but the procedure and `put_off_1` have the owner's rights.

grant execute on function
    treadle.ensure_1, treadle.insert_1, treadle.insert_one_1, treadle.insert_keyed_1,
    treadle.insert_keyed_2, treadle.put_off_1, treadle.enqueue,
    treadle.get_1, treadle.kept_1, treadle.progress_1
to treadle_enqueuer;

grant execute on procedure treadle.insert_told_1 to treadle_enqueuer;

-- Viewers: views where rows hold what jobs carry, tables where they do not. (The functions are what views are made of.)

grant select on
    treadle.viewer_job, treadle.viewer_job_history, treadle.viewer_job_error, treadle.viewer_job_progress,
    treadle.viewer_job_log, treadle.viewer_answer, treadle.viewer_schedule, treadle.viewer_pod,
    treadle.held, treadle.queue, treadle.lane, treadle.leader, treadle.run, treadle.share, treadle.catalog,
    treadle.rate_limit, treadle.named_lock, treadle.fire, treadle.rollup, treadle.reading, treadle.event,
    treadle.operation, treadle.audit, treadle.mute, treadle.deploy
to treadle_viewer;

grant execute on function treadle.without_1, treadle.plans_1 to treadle_viewer;

commit;
