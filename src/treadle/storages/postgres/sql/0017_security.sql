-- compatible_from: 2
--
-- Security: bounds on columns, and what roles need that have no rights on tables.
--
-- Bounds
-- ------
-- Numbers and times that the code can compute with, whoever writes them. A value beyond them (an attempt of
-- 2147483647, a lease until 'infinity') would make a statement fail that reads or writes many rows, and so stop what is
-- around it.
--
-- `not valid`: adding them reads no row and holds its lock for an instant. What is there already stays as it is; it is
-- checked when it is next written, and whoever writes it puts it right first (`bounds.py`, which says the same of every
-- column by its name, for `treadle doctor`; a test compares the two). Instants lie in the years 1 to 9999, as Python's
-- datetime has them. A condition on a null holds.
--
-- A constraint costs a statement by its length, since it is made ready anew each time: 0.4 µs for each name, number and
-- sign in it. A lone enqueue takes 200 µs, and one that tested all columns of a job took 9 % longer. So `job` has what
-- statements count with, and nothing else: or-ed, a bit above the thirtieth is left if one of the counters is negative or
-- too large. What else is wrong with a job's row is seen where it would be claimed, and ends that job alone; ended jobs
-- (`job_history`) are only read, and a beat copies the deadlines of its jobs (`run`) as they are.
alter table treadle.job add constraint job_bounds check (
    (attempt | crashes | snoozes | throttles | error_count) >> 30 = 0
) not valid;

alter table treadle.held add constraint held_bounds check (
    until >= '0001-01-01 00:00:00+00' and until < '10000-01-01 00:00:00+00'
) not valid;

alter table treadle.queue add constraint queue_bounds check (
    (version | cool_exponent) >> 30 = 0
    and max_workers between 0 and 1073741823
    and timeout <= 1e11
    and aging <= 1e11
    and coalesce(least(paused_at, paused_until, cool_until), 'epoch') >= '0001-01-01 00:00:00+00'
    and coalesce(greatest(paused_at, paused_until, cool_until), 'epoch') < '10000-01-01 00:00:00+00'
    and octet_length(name) <= 128
) not valid;

alter table treadle.lane add constraint lane_bounds check (
    priority between -100 and 100 and octet_length(queue) <= 128
) not valid;

alter table treadle.pod add constraint pod_bounds check (
    least(started_at, beat_at, lease_until, stacks_at, stacks_asked) >= '0001-01-01 00:00:00+00'
    and greatest(started_at, beat_at, lease_until, stacks_at, stacks_asked) < '10000-01-01 00:00:00+00'
) not valid;

-- Nobody leads: since ever.
alter table treadle.leader add constraint leader_bounds check (
    term >= 0 and term < 4611686018427387904 and until < '10000-01-01 00:00:00+00'
) not valid;

alter table treadle.share add constraint share_bounds check (share between 0 and 1073741823) not valid;

alter table treadle.job_error add constraint job_error_bounds check (
    n between 0 and 1073741823
    and ended_at >= '0001-01-01 00:00:00+00'
    and ended_at < '10000-01-01 00:00:00+00'
) not valid;

alter table treadle.schedule add constraint schedule_bounds check (version between 0 and 1073741823) not valid;

alter table treadle.fire add constraint fire_bounds check (
    least(fire_at, at) >= -62135596800 and greatest(fire_at, at) < 253402300800
) not valid;

alter table treadle.rate_limit add constraint rate_limit_bounds check (
    version between 0 and 1073741823
    and capacity between 0 and 1073741823
    and refill > 0 and refill <= 1e11
    and tokens between -1e11 and 1e11
    and at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.named_lock add constraint named_lock_bounds check (
    fence >= 0 and fence < 4611686018427387904
    and until >= '0001-01-01 00:00:00+00' and until < '10000-01-01 00:00:00+00'
) not valid;

alter table treadle.catalog add constraint catalog_bounds check (
    seen_at >= '0001-01-01 00:00:00+00' and seen_at < '10000-01-01 00:00:00+00'
) not valid;

alter table treadle.operation add constraint operation_bounds check (
    version between 0 and 1073741823
    and least(created_at, finished_at) >= -62135596800 and greatest(created_at, finished_at) < 253402300800
) not valid;

alter table treadle.audit add constraint audit_bounds check (
    at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.rollup add constraint rollup_bounds check (
    resolution between 1 and 1073741823 and at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.reading add constraint reading_bounds check (
    resolution between 1 and 1073741823 and at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.event add constraint event_bounds check (
    at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.job_progress add constraint job_progress_bounds check (
    attempt between 0 and 1073741823 and at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.job_checkpoint add constraint job_checkpoint_bounds check (
    attempt between 0 and 1073741823 and at >= -62135596800 and at < 253402300800
) not valid;

alter table treadle.job_log add constraint job_log_bounds check (
    attempt between 0 and 1073741823 and n between -62135596800000000 and 253402300800000000
) not valid;

alter table treadle.answer add constraint answer_bounds check (
    timeout between 0 and 1e11
    and delay between 0 and 1e11
    and least(opened_at, expires_at, at) >= -62135596800 and greatest(opened_at, expires_at, at) < 253402300800
) not valid;

alter table treadle.mute add constraint mute_bounds check (
    least(at, until) >= -62135596800 and greatest(at, until) < 253402300800
) not valid;

-- A lane that its bounds refuse is not made: its jobs rest, and doctor names them. But for that it is lanes_1 of 0002.
create or replace function treadle.lanes_1() returns integer
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set lock_timeout = '200ms'
as $$
declare
    v_queue text;
    v_priority int2;
    v_found integer := 0;
begin
    select j.queue, j.priority into v_queue, v_priority
    from treadle.job as j
    order by j.queue, j.priority
    limit 1;
    while found loop
        if
            v_priority between -100 and 100
            and octet_length(v_queue) <= 128
            and not exists (select from treadle.lane as l where l.queue = v_queue and l.priority = v_priority)
        then
            perform treadle.ensure_1(array[v_queue], array[v_priority]);
            v_found := v_found + 1;
        end if;
        select j.queue, j.priority into v_queue, v_priority
        from treadle.job as j
        where (j.queue, j.priority) > (v_queue, v_priority)
        order by j.queue, j.priority
        limit 1;
    end loop;
    return v_found;
end
$$;

-- Which queues the live pods serve, for a beat. Of one whose card is damaged no queue is known; it keeps nobody else from
-- beating.
create function treadle.serving_1(p_steady timestamptz, p_boot text) returns json
language plpgsql
as $$
declare
    v_pod record;
    v_pods integer := 0;
    v_serving json;
    v_names text[] := '{}';
begin
    begin
        with live as (
            select p.card, p.wish = 'serve' and coalesce(p.stats::json ->> 'quiet', 'false') <> 'true' as serves
            from treadle.pod as p
            where not p.lost and not p.gone and p.boot = p_boot and p.lease_until > p_steady
        )
        select json_build_object(
            'pods', (select count(*) from live),
            'serving', coalesce((
                select json_object_agg(s.queue, s.number)
                from (
                    select k.queue, count(*) as number
                    from live as l
                    cross join lateral json_object_keys(l.card::json -> 'queues') as k (queue)
                    where l.serves
                    group by k.queue
                ) as s
            ), '{}')
        ) into v_serving;
        return v_serving;
    exception when data_exception then
        null;
    end;
    for v_pod in
        select p.card, p.stats, p.wish
        from treadle.pod as p
        where not p.lost and not p.gone and p.boot = p_boot and p.lease_until > p_steady
    loop
        v_pods := v_pods + 1;
        begin
            if v_pod.wish = 'serve' and coalesce(v_pod.stats::json ->> 'quiet', 'false') <> 'true' then
                v_names := v_names || array(select json_object_keys(v_pod.card::json -> 'queues'));
            end if;
        exception when data_exception then
            null;
        end;
    end loop;
    return json_build_object(
        'pods', v_pods,
        'serving', coalesce((
            select json_object_agg(s.queue, s.number)
            from (select k.queue, count(*) as number from unnest(v_names) as k (queue) group by k.queue) as s
        ), '{}')
    );
end
$$;

-- But for that it is beat_pod_1 of 0006.
create or replace function treadle.beat_pod_1(
    p_now float8, p_steady float8, p_boot text, p_pod text, p_lease float8, p_renew boolean,
    p_ids text[], p_tokens text[], p_slots text[], p_suspects text[], p_small bigint,
    p_stats text, p_stacks text
) returns text
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_clock timestamptz := coalesce(to_timestamp(p_now), clock_timestamp());
    v_steady timestamptz := coalesce(to_timestamp(p_steady), clock_timestamp());
    v_ids uuid[] := p_ids::uuid[];
    v_held json;
    v_wish text;
    v_stacks_asked timestamptz;
    v_live json;
begin
    if p_renew then
        update treadle.pod as p
        set
            lease_until = v_steady + p_lease * interval '1 second', beat_at = v_clock, swept = false,
            stats = coalesce(p_stats, p.stats), stacks = coalesce(p_stacks, p.stacks),
            stacks_at = case when p_stacks is null then p.stacks_at else v_clock end
        where p.id = p_pod and not p.lost and not p.gone and p.boot = p_boot
        returning p.wish, p.stacks_asked into v_wish, v_stacks_asked;
    else
        select p.wish, p.stacks_asked into v_wish, v_stacks_asked
        from treadle.pod as p
        where p.id = p_pod and not p.lost and not p.gone and p.boot = p_boot;
    end if;
    if not found then
        return json_build_object('now', date_part('epoch', v_clock), 'lost', true)::text;
    end if;
    if cardinality(v_ids) > 0 then
        -- Rows that somebody else is writing are passed over: a slot is worth no waiting, and no deadlock.
        with free as (
            select j.id, u.slot
            from treadle.job as j
            join unnest(v_ids, p_tokens, p_slots) as u (id, token, slot) on u.id = j.id and u.token = j.token
            where j.id = any (v_ids) and j.state = 'running' and j.slot is distinct from u.slot
            order by j.id
            for update of j skip locked
        )
        update treadle.job as j
        set slot = f.slot
        from free as f
        where j.id = any (v_ids) and j.id = f.id;
    end if;
    delete from treadle.run as r where r.pod = p_pod and not (r.job_id = any (v_ids));
    if cardinality(v_ids) > 0 then
        insert into treadle.run (job_id, pod, token, deadline)
        select j.id, j.pod, j.token, j.deadline
        from treadle.job as j
        join unnest(v_ids, p_tokens) as u (id, token) on u.id = j.id and u.token = j.token
        where j.id = any (v_ids) and j.state = 'running' and j.pod = p_pod
        order by j.id
        on conflict (job_id) do update
        set pod = excluded.pod, token = excluded.token, deadline = excluded.deadline
        where run.token <> excluded.token;
    end if;
    if pg_relation_size('treadle.job') < p_small or cardinality(p_suspects) > 0 then
        select json_agg(json_build_array(j.id, j.token, j.cancel_wanted) order by j.seq) into v_held
        from treadle.job as j
        where j.state = 'running' and j.pod = p_pod;
    else
        select json_agg(json_build_array(j.id, j.token, j.cancel_wanted) order by j.seq) into v_held
        from treadle.job as j
        where j.id = any (v_ids) and j.state = 'running' and j.pod = p_pod;
    end if;
    v_live := treadle.serving_1(v_steady, p_boot);
    return json_build_object(
        'now', date_part('epoch', v_clock),
        'held', coalesce(v_held, '[]'),
        'live_pods', v_live -> 'pods',
        'serving', v_live -> 'serving',
        'shares', coalesce((
            select json_object_agg(s.queue, s.share order by s.queue) from treadle.share as s where s.pod = p_pod
        ), '{}'),
        'wish', v_wish,
        'stacks_asked', date_part('epoch', v_stacks_asked)
    )::text;
end
$$;

-- Roles
-- -----
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
