-- Roles for a schema that several programs share. Run once, as the owner of the database, after the first migration,
-- and again after every migration: new tables and functions get their grants. Give each program a login role that is a
-- member of one of these.
--
--   treadle_owner     owns the schema and everything in it
--   treadle_migrator  may run `treadle db migrate` (a member of the owner, and nothing more)
--   treadle_worker    runs pods: enqueue, claim, finish, beat; no DDL
--   treadle_enqueuer  may enqueue and look at jobs; cannot claim, finish or change queues
--   treadle_viewer    may look

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
            and (c.relkind = 'r' or (c.relkind = 'S' and not exists (
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

revoke all on schema treadle_schema_name from public;

grant usage on schema treadle_schema_name to treadle_worker, treadle_enqueuer, treadle_viewer;

grant select on all tables in schema treadle_schema_name to treadle_worker, treadle_enqueuer, treadle_viewer;

grant insert, update, delete on
    treadle.job, treadle.job_history, treadle.job_error, treadle.held, treadle.queue, treadle.lane, treadle.pod,
    treadle.leader, treadle.run, treadle.share, treadle.catalog,
    treadle.rate_limit, treadle.named_lock, treadle.schedule, treadle.fire, treadle.rollup, treadle.reading, treadle.event,
    treadle.operation, treadle.audit, treadle.job_progress, treadle.job_checkpoint, treadle.job_log,
    treadle.answer, treadle.mute
to treadle_worker;

grant execute on all routines in schema treadle_schema_name to treadle_worker;

-- `update` and `delete` on job are what a unique key's `replace` and a repeated enqueue need; a row that runs is
-- protected by its token, which an enqueuer has no function to use.
grant insert on treadle.job, treadle.queue, treadle.lane, treadle.held to treadle_enqueuer;

grant update, delete on treadle.job, treadle.held to treadle_enqueuer;

-- What the last attempt of a job has left goes when the job is replaced.
grant delete on treadle.job_progress, treadle.job_checkpoint to treadle_enqueuer;

grant execute on function
    treadle.ensure_1, treadle.insert_1, treadle.insert_one_1, treadle.insert_keyed_1,
    treadle.insert_keyed_2, treadle.put_off_1, treadle.enqueue
to treadle_enqueuer;

grant execute on procedure treadle.insert_told_1 to treadle_enqueuer;

grant usage on all sequences in schema treadle_schema_name to treadle_worker, treadle_enqueuer;

-- `treadle db copy` keeps the order of the jobs that it brings.
grant update on all sequences in schema treadle_schema_name to treadle_worker;
