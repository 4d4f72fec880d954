-- compatible_from: 2
--
-- `on_conflict="keep_last"`: the request that is kept behind a job under way, as JSON, until its run ends. Nearly every
-- row has none, and then it costs nothing. Use it once every pod knows it: an older one would end the run without it.

alter table treadle.job add column kept text;

-- A request is looked up by the id that it will have.
create index job_kept on treadle.job ((kept::jsonb ->> 'id')) where kept is not null;

-- A debounced request puts the one before it off, but never beyond its cap after the first.
create function treadle.put_off_1(p_due timestamptz, p_now timestamptz, p_first timestamptz, p_cap float8)
returns timestamptz
language sql
stable
as $$
    select case
        when p_cap is null then p_due
        else greatest(p_now, least(p_due, p_first + p_cap * interval '1 second'))
    end
$$;

-- As `insert_keyed_1`, with the rule by its name, the cap of a debounce, and when a request was asked for that was kept
-- until now.
create function treadle.insert_keyed_2(
    p_now float8,
    p_ids text[], p_queues text[], p_tasks text[], p_args text[], p_priorities int2[], p_delays float8[],
    p_run_ats float8[], p_max_attempts int4[], p_timeouts float8[], p_pinned boolean[], p_formats int2[],
    p_tags text[], p_metas text[], p_reasons text[],
    p_keys text[], p_periods float8[], p_holds boolean[], p_rules text[], p_caps float8[], p_asked_ats float8[]
) returns table (n integer, id text, outcome text)
language plpgsql
set lock_timeout = '2s'
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_clock timestamptz := coalesce(to_timestamp(p_now), clock_timestamp());
    v_seconds float8 := date_part('epoch', v_clock);
    v_seqs bigint[];
    v_new record;
    v_key text;
    v_due timestamptz;
    v_holder uuid;
    v_queue text;
    v_kept text;
    v_tries integer;
begin
    -- The order of insertion is that of the request, whatever order they are written in.
    select array_agg(nextval(pg_get_serial_sequence('treadle.job', 'seq')) order by o) into v_seqs
    from generate_series(1, cardinality(p_ids)) as o;
    for v_new in
        select u.*, u.key || coalesce('@' || floor(v_seconds / u.period)::bigint || '#', '') as full_key
        from unnest(
            p_ids::uuid[], p_queues, p_tasks, p_args, p_priorities, p_delays, p_run_ats, p_max_attempts, p_timeouts,
            p_pinned, p_formats, p_tags, p_metas, p_reasons, p_keys, p_periods, p_holds, p_rules,
            p_caps, p_asked_ats
        ) with ordinality as u (
            id, queue, task, args, priority, delay, run_at, max_attempts, timeout, pinned, format, tags, meta, reason,
            key, period, holds, rule, cap, asked_at, number
        )
        order by full_key nulls first, number
    loop
        n := v_new.number;
        id := v_new.id;
        outcome := 'inserted';
        v_key := v_new.full_key;
        v_due := case
            when v_new.run_at is not null then greatest(v_clock, to_timestamp(v_new.run_at))
            else v_clock + coalesce(v_new.delay, 0) * interval '1 second'
        end;
        v_tries := 0;
        loop
            -- A repeat is told before the key is looked at: its own job may hold it, even as a success.
            if exists (select from treadle.job as j where j.id = v_new.id)
                or exists (select from treadle.job_history as h where h.id = v_new.id)
            then
                exit;
            end if;
            v_holder := null;
            if v_key is not null then
                select h.id into v_holder
                from treadle.held as held
                join treadle.job_history as h on h.id = held.id
                where held.key = v_key and held.until > v_clock and h.state = 'succeeded';
                if v_holder is not null then
                    id := v_holder;
                    outcome := 'duplicate';
                    exit;
                end if;
            end if;
            insert into treadle.job (
                seq, id, queue, task, args, priority, run_at, created_at, max_attempts, timeout, pinned, format, tags,
                meta, reason, unique_key
            )
            overriding system value
            values (
                v_seqs[v_new.number], v_new.id, v_new.queue, v_new.task, v_new.args, coalesce(v_new.priority, 0),
                v_due, coalesce(to_timestamp(v_new.asked_at), v_clock), v_new.max_attempts, v_new.timeout,
                coalesce(v_new.pinned, false), coalesce(v_new.format, 1), v_new.tags::text[], v_new.meta, v_new.reason, v_key
            )
            on conflict do nothing;
            if found then
                -- The insert may have waited for the last holder to succeed, or for this very job to end.
                if exists (select from treadle.job_history as h where h.id = v_new.id) then
                    delete from treadle.job as j where j.id = v_new.id;
                    exit;
                end if;
                select h.id into v_holder
                from treadle.held as held
                join treadle.job_history as h on h.id = held.id
                where held.key = v_key and held.until > v_clock and h.state = 'succeeded';
                if v_holder is not null then
                    delete from treadle.job as j where j.id = v_new.id;
                    id := v_holder;
                    outcome := 'duplicate';
                    exit;
                end if;
                if not exists (
                    select from treadle.lane as l
                    where l.queue = v_new.queue and l.priority = coalesce(v_new.priority, 0)
                ) then
                    perform treadle.ensure_1(array[v_new.queue], array[coalesce(v_new.priority, 0)::int2]);
                end if;
                if v_new.holds and v_new.period is not null then
                    insert into treadle.held (key, id, until)
                    values (v_key, v_new.id, to_timestamp((floor(v_seconds / v_new.period) + 1) * v_new.period))
                    on conflict (key) do update set id = excluded.id, until = excluded.until;
                end if;
                exit;
            end if;
            select j.id into v_holder from treadle.job as j where j.unique_key = v_key;
            if v_holder is not null then
                id := v_holder;
                outcome := 'duplicate';
                if v_new.rule = 'keep_last' then
                    -- What was kept behind a job stays there while it goes to and fro between an answer and a run.
                    update treadle.job as j
                    set kept = json_build_object(
                        'id', coalesce(j.kept::jsonb ->> 'id', v_new.id::text),
                        'task', v_new.task, 'queue', v_new.queue, 'args', v_new.args,
                        'format', coalesce(v_new.format, 1), 'priority', coalesce(v_new.priority, 0), 'delay', 0,
                        'run_at', date_part('epoch', treadle.put_off_1(
                            v_due, v_clock,
                            coalesce(to_timestamp((j.kept::jsonb ->> 'asked_at')::float8), v_clock), v_new.cap
                        )),
                        'max_attempts', v_new.max_attempts, 'timeout', v_new.timeout,
                        'pinned', coalesce(v_new.pinned, false),
                        'tags', coalesce(to_json(v_new.tags::text[]), '[]'),
                        'meta', v_new.meta, 'reason', v_new.reason,
                        'unique', json_build_object(
                            'key', j.unique_key, 'period', null, 'include_succeeded', false, 'on_conflict', 'skip',
                            'cap', null
                        ),
                        'asked_at', coalesce((j.kept::jsonb ->> 'asked_at')::float8, v_seconds)
                    )::text
                    where j.id = v_holder and (j.state in ('running', 'waiting') or j.kept is not null)
                    returning j.kept::jsonb ->> 'id' into v_kept;
                    if found then
                        id := v_kept;
                        outcome := 'kept';
                        exit;
                    end if;
                end if;
                if v_new.rule <> 'skip' then
                    update treadle.job as j
                    set
                        args = v_new.args, format = coalesce(v_new.format, 1),
                        run_at = treadle.put_off_1(v_due, v_clock, j.created_at, v_new.cap),
                        priority = coalesce(v_new.priority, 0), tags = v_new.tags::text[], meta = v_new.meta,
                        reason = v_new.reason, attempt = 0, crashes = 0
                    where j.id = v_holder and j.state = 'ready'
                    returning j.queue into v_queue;
                    if found then
                        outcome := 'replaced';
                        -- It asks for something else now: what its last attempt has left is of no use to it.
                        delete from treadle.job_progress as s where s.job_id = v_holder::text;
                        delete from treadle.job_checkpoint as s where s.job_id = v_holder::text;
                        if not exists (
                            select from treadle.lane as l
                            where l.queue = v_queue and l.priority = coalesce(v_new.priority, 0)
                        ) then
                            perform treadle.ensure_1(array[v_queue], array[coalesce(v_new.priority, 0)::int2]);
                        end if;
                    end if;
                end if;
                -- One that began or ended between our looks must be looked at again, or the request would be lost.
                exit when outcome = 'replaced' or coalesce(v_new.rule, 'skip') <> 'keep_last';
                id := v_new.id;
                outcome := 'inserted';
            end if;
            -- Whoever was in the way has gone meanwhile.
            v_tries := v_tries + 1;
            if v_tries > 20 then
                raise exception 'the unique key is taken and given back all the time' using errcode = '40001';
            end if;
        end loop;
        return next;
    end loop;
end
$$;

-- As `finish_1`, but what is kept behind a job is not passed over: such a job is left to be looked at by itself.
create function treadle.finish_2(
    p_now float8, p_ids text[], p_tokens text[], p_states text[], p_results text[], p_warnings text[],
    p_errors text[], p_causes text[], p_guarded boolean[]
) returns setof text
language plpgsql
set lock_timeout = '1s'
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
    v_ids uuid[] := p_ids::uuid[];
begin
    return query
    with ended as (
        delete from treadle.job as j
        using unnest(v_ids, p_tokens, p_states, p_results, p_warnings, p_errors, p_causes, p_guarded) as u (
            id, token, to_state, result, new_warning, error, new_cause, guarded
        )
        where
            j.id = any (v_ids)
            and j.id = u.id
            and j.token = u.token
            and j.state = 'running'
            and j.kept is null
            and not (j.cancel_wanted and coalesce(u.guarded, false))
        returning j.*, u.to_state, u.result, u.new_warning, u.error, u.new_cause
    ),
    remembered as (
        insert into treadle.job_error (job_id, n, ended_at, entry)
        select e.id, e.error_count + 1, v_clock, e.error
        from ended as e
        where e.error is not null
    )
    insert into treadle.job_history (
        seq, id, run_at, created_at, started_at, finished_at, timeout, max_attempts, priority, format, pinned, attempt,
        crashes, snoozes, throttles, error_count, state, pod, slot, token, finished_token, queue, task, cause,
        unique_key, tags, meta, reason, warning, args, result
    )
    select
        e.seq, e.id, e.run_at, e.created_at, e.started_at, v_clock, e.timeout, e.max_attempts, e.priority, e.format,
        e.pinned, e.attempt, e.crashes, e.snoozes, e.throttles, e.error_count + (e.error is not null)::int,
        coalesce(e.to_state, 'succeeded'), e.pod, e.slot, e.token, e.token, e.queue, e.task,
        case when e.to_state = 'failed' then e.task || ':' || e.new_cause end, e.unique_key, e.tags, e.meta, e.reason,
        case when e.to_state is null then e.new_warning else coalesce(e.new_warning, e.warning) end, e.args, e.result
    from ended as e
    returning id::text;
end
$$;

-- As `return_1`, with the same exception.
create function treadle.return_2(
    p_now float8, p_ids text[], p_tokens text[], p_delays float8[], p_run_ats float8[], p_attempts int4[],
    p_snoozes int4[], p_warnings text[], p_errors text[], p_guarded boolean[]
) returns table (id text, queue text, later boolean)
language plpgsql
set lock_timeout = '1s'
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
    v_ids uuid[] := p_ids::uuid[];
begin
    return query
    with returned as (
        update treadle.job as j
        set
            state = 'ready', pod = null, slot = null, deadline = null, cancel_wanted = false, finished_token = j.token,
            run_at = case
                when u.run_at is not null then greatest(v_clock, to_timestamp(u.run_at))
                else v_clock + coalesce(u.delay, 0) * interval '1 second'
            end,
            attempt = coalesce(u.attempt, j.attempt),
            snoozes = coalesce(u.snoozes, j.snoozes),
            warning = coalesce(u.warning, j.warning),
            error_count = j.error_count + (u.error is not null)::int
        from unnest(v_ids, p_tokens, p_delays, p_run_ats, p_attempts, p_snoozes, p_warnings, p_errors, p_guarded) as u (
            id, token, delay, run_at, attempt, snoozes, warning, error, guarded
        )
        where
            j.id = any (v_ids)
            and j.id = u.id
            and j.token = u.token
            and j.state = 'running'
            and j.kept is null
            and not (j.cancel_wanted and coalesce(u.guarded, false))
        returning j.id, j.queue, j.run_at, j.error_count, u.error
    ),
    remembered as (
        insert into treadle.job_error (job_id, n, ended_at, entry)
        select r.id, r.error_count, v_clock, r.error
        from returned as r
        where r.error is not null
    )
    select r.id::text, r.queue, r.run_at > v_clock
    from returned as r;
end
$$;
