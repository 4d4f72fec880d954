-- compatible_from: 2
--
-- What roles need that have no rights on tables: functions that enqueue and look up with the owner's rights, views that
-- leave out what a job carries, and an audit that nobody shortens. Who may use them is granted by roles.sql.
--
-- A function with its owner's rights must not let its caller choose what its names mean: so every function has its
-- search_path pinned, those of workers too (a schema that anybody may create in, such as `public` before PostgreSQL 15, is
-- on their path by default). `pg_temp` stands last, or it would come first. And nobody but the owner may call any of
-- them until roles.sql says otherwise: PostgreSQL would let everybody.

do $$
declare
    v_routine record;
begin
    for v_routine in
        select p.oid::regprocedure as name, p.proname, p.prokind
        from pg_proc as p
        where p.pronamespace = 'treadle_schema_name'::regnamespace
    loop
        execute format('revoke all on routine %s from public', v_routine.name);
        -- A procedure that commits may neither pin its path nor have its owner's rights: see insert_told_1 below.
        if v_routine.prokind = 'f' then
            execute format('alter function %s set search_path = pg_catalog, pg_temp', v_routine.name);
        end if;
        if v_routine.proname in ('ensure_1', 'insert_1', 'insert_one_1', 'insert_keyed_1', 'insert_keyed_2') then
            execute format('alter function %s security definer', v_routine.name);
        end if;
    end loop;
end
$$;

-- As before, with every name qualified: it runs with the caller's rights and on the caller's search_path, because it
-- commits, and does nothing but call functions that do not.
create or replace procedure treadle.insert_told_1(
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
    perform
        pg_catalog.set_config('synchronous_commit', 'off', true),
        pg_catalog.pg_notify('treadle:treadle_schema_name', p_queue);
end
$$;

-- JSON text without some of its keys; what cannot be read shows nothing. (Not `parallel safe`: an exception block needs a
-- subtransaction, which a parallel worker cannot begin.)
create function treadle.without_1(p_text text, p_keys text[], p_instead jsonb) returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    return ((p_text::jsonb - p_keys) || p_instead)::text;
exception when others then
    return '{}';
end
$$;

-- A schedule's definition without the arguments of its jobs, in the plan and in what code declared.
create function treadle.plans_1(p_text text) returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_all jsonb := p_text::jsonb;
    v_hidden constant jsonb := to_jsonb('{"hidden":true}'::text);
begin
    v_all := jsonb_set(v_all, '{plan,args}', v_hidden, false);
    return jsonb_set(v_all, '{declared,args}', v_hidden, false)::text;
exception when others then
    return '{}';
end
$$;

-- The tables as a viewer reads them: the same columns under the same names, so that every statement that reads a table
-- reads its view as well, without arguments, results, metadata, logs, answers and the texts of errors. The kind, type and
-- place of an error stay: failures are grouped by them.
create view treadle.viewer_job as
select
    seq, id, run_at, created_at, timeout, max_attempts, priority, format, pinned, cancel_wanted, attempt, crashes,
    snoozes, throttles, error_count, started_at, deadline, state, pod, slot, token, finished_token, queue, task,
    unique_key, tags, null::text as meta, reason, warning, '{"hidden":true}'::text as args, null::text as kept
from treadle.job;

create view treadle.viewer_job_history as
select
    seq, id, run_at, created_at, started_at, finished_at, timeout, max_attempts, priority, format, pinned, attempt,
    crashes, snoozes, throttles, error_count, state, pod, slot, token, finished_token, queue, task, cause, unique_key,
    tags, null::text as meta, reason, warning, '{"hidden":true}'::text as args,
    case when result is not null then '{"hidden":true}'::text end as result
from treadle.job_history;

create view treadle.viewer_job_error as
select
    job_id, n, ended_at,
    treadle.without_1(entry, '{message,trace}', '{"message": "(hidden from this login)"}') as entry
from treadle.job_error;

create view treadle.viewer_job_progress as
select
    job_id, attempt, at,
    treadle.without_1(entry, '{data}', '{}') as entry
from treadle.job_progress;

create view treadle.viewer_job_log as
select
    job_id, n, attempt, level,
    '(hidden from this login)'::text as text
from treadle.job_log;

create view treadle.viewer_answer as
select
    id, job_id, claim, timeout, opened_at, expires_at, waits, kind, delay, at,
    case when value is not null then '{"hidden":true}'::text end as value
from treadle.answer;

create view treadle.viewer_schedule as
select
    name, version, progress,
    treadle.plans_1(definition) as definition
from treadle.schedule;

create view treadle.viewer_pod as
select
    n, id, card, started_at, beat_at, lease_until, boot, lost, gone, swept, stats, wish, wish_by, null::text as stacks,
    stacks_at, stacks_asked
from treadle.pod;

-- What an enqueuer may know of a job: of one whose id it has, whoever made it, how it goes, its result and its errors; not
-- what it was given. The columns are those of `get.sql`.
create function treadle.get_1(p_now float8, p_ids uuid[])
returns table (
    seq bigint, id text, task text, queue text, state text, args text, format int2, priority int2, run_at float8,
    created_at float8, attempt int4, max_attempts int4, timeout float8, pinned boolean, tags text[], meta text,
    reason text, unique_key text, pod text, slot text, token text, started_at float8, deadline float8,
    finished_at float8, crashes int4, snoozes int4, throttles int4, cancel_wanted boolean, result text, warning text,
    kept text, error_count int4, errors text
)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
    select
        j.seq, j.id::text, j.task, j.queue,
        case
            when j.state = 'ready' and j.run_at > coalesce(to_timestamp(p_now), statement_timestamp()) then 'scheduled'
            else j.state
        end,
        '{"hidden":true}', j.format, j.priority, date_part('epoch', j.run_at), date_part('epoch', j.created_at),
        j.attempt, j.max_attempts, j.timeout, j.pinned, j.tags, null::text, j.reason, j.unique_key, j.pod, j.slot,
        null::text, date_part('epoch', j.started_at), date_part('epoch', j.deadline), null::float8, j.crashes, j.snoozes,
        j.throttles, j.cancel_wanted, null::text, j.warning, null::text, j.error_count,
        (
            select json_agg(json_build_array(date_part('epoch', e.ended_at), e.entry) order by e.n)::text
            from treadle.job_error as e
            where e.job_id = j.id and e.n > j.error_count - 32
        )
    from treadle.job as j
    where j.id = any (p_ids)
    union all
    select
        h.seq, h.id::text, h.task, h.queue, h.state, '{"hidden":true}', h.format, h.priority,
        date_part('epoch', h.run_at), date_part('epoch', h.created_at), h.attempt, h.max_attempts, h.timeout, h.pinned,
        h.tags, null::text, h.reason, h.unique_key, h.pod, h.slot, null::text, date_part('epoch', h.started_at),
        null::float8, date_part('epoch', h.finished_at), h.crashes, h.snoozes, h.throttles, false, h.result, h.warning,
        null::text, h.error_count,
        (
            select json_agg(json_build_array(date_part('epoch', e.ended_at), e.entry) order by e.n)::text
            from treadle.job_error as e
            where e.job_id = h.id and e.n > h.error_count - 32
        )
    from treadle.job_history as h
    where h.id = any (p_ids)
$$;

-- A request that waits behind a job (`on_conflict="keep_last"`), by the id that it will have.
create function treadle.kept_1(p_ids text[]) returns table (kept text, id text)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
    select treadle.without_1(j.kept, '{args,meta}', '{"args": "{\"hidden\":true}"}'), j.id::text
    from treadle.job as j
    where j.kept is not null and j.kept::jsonb ->> 'id' = any (p_ids)
$$;

create function treadle.progress_1(p_ids text[])
returns table (job_id text, attempt int4, at float8, entry text)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.job_id, s.attempt, s.at, s.entry
    from treadle.job_progress as s
    where
        s.job_id = any (p_ids)
        and not exists (
            select from treadle.job_history as h where h.id = s.job_id::uuid and h.state = 'succeeded'
        )
$$;

-- Lines of the audit are kept for 90 days. A worker may add some and forget those that are older, and nothing else: the
-- age is not its caller's to choose, nor, but for what lies behind, the time.
create function treadle.prune_audit_1(p_now float8) returns integer
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    with gone as (
        delete from treadle.audit
        where at <= least(p_now, date_part('epoch', clock_timestamp())) - 90 * 86400.0
        returning 1
    )
    select count(*)::integer from gone
$$;

do $$
declare
    v_routine record;
begin
    for v_routine in
        select p.oid::regprocedure as name from pg_proc as p where p.pronamespace = 'treadle_schema_name'::regnamespace
    loop
        execute format('revoke all on routine %s from public', v_routine.name);
    end loop;
end
$$;
