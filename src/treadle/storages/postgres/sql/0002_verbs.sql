-- compatible_from: 1
--
-- The hot path as functions. A function carries its planner settings with it: a plan that was made while the table was
-- empty is kept for hours, and without them it may read the whole table for every job (see `finish_1`). It also makes a
-- verb one round trip, on any driver, pooled or not. A function is never changed once released: its successor gets
-- the next number, so that the code of two versions can use one database.
--
-- `p_now` is null in production, and the server's clock is read; tests hand in theirs.

-- Queues and lanes that somebody is about to use. If another transaction is about to make the same one, it is not waited
-- for: it may stay open for hours. (If it is rolled back, `lanes_1` finds the lane.)
create function treadle.ensure_1(p_queues text[], p_priorities int2[]) returns boolean
language plpgsql
set lock_timeout = '200ms'
as $$
begin
    insert into treadle.queue (name)
    select distinct new.name
    from unnest(p_queues) as new (name)
    where not exists (select from treadle.queue as q where q.name = new.name)
    order by new.name
    on conflict do nothing;
    insert into treadle.lane (queue, priority)
    select distinct new.queue, new.priority
    from unnest(p_queues, p_priorities) as new (queue, priority)
    where not exists (select from treadle.lane as l where l.queue = new.queue and l.priority = new.priority)
    order by new.queue, new.priority
    on conflict do nothing;
    return true;
exception when lock_not_available then
    return false;
end
$$;

-- Find lanes that nobody has told of: each step seeks the next priority of a queue, or the next queue, in job_lane.
create function treadle.lanes_1() returns integer
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
        if not exists (select from treadle.lane as l where l.queue = v_queue and l.priority = v_priority) then
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

-- New jobs without unique keys. A known id is left as it is.
create function treadle.insert_1(
    p_now float8,
    p_ids text[], p_queues text[], p_tasks text[], p_args text[], p_priorities int2[], p_delays float8[],
    p_run_ats float8[], p_max_attempts int4[], p_timeouts float8[], p_pinned boolean[], p_formats int2[],
    p_tags text[], p_metas text[], p_reasons text[]
) returns integer
language plpgsql
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_clock timestamptz := coalesce(to_timestamp(p_now), clock_timestamp());
    v_ids uuid[];
begin
    with fresh as (
        insert into treadle.job (
            id, queue, task, args, priority, run_at, created_at, max_attempts, timeout, pinned, format, tags, meta,
            reason
        )
        select
            u.id::uuid,
            u.queue,
            u.task,
            u.args,
            coalesce(u.priority, 0),
            case
                when u.run_at is not null then greatest(v_clock, to_timestamp(u.run_at))
                when u.delay is not null then v_clock + u.delay * interval '1 second'
                else v_clock
            end,
            v_clock,
            u.max_attempts,
            u.timeout,
            coalesce(u.pinned, false),
            coalesce(u.format, 1),
            u.tags::text[],
            u.meta,
            u.reason
        from unnest(
            p_ids, p_queues, p_tasks, p_args, p_priorities, p_delays, p_run_ats, p_max_attempts, p_timeouts, p_pinned,
            p_formats, p_tags, p_metas, p_reasons
        ) as u (
            id, queue, task, args, priority, delay, run_at, max_attempts, timeout, pinned, format, tags, meta, reason
        )
        on conflict do nothing
        returning id
    )
    select array_agg(id) into v_ids from fresh;
    -- Under a new snapshot: a job that ended while this statement waited is in neither place by the first one.
    delete from treadle.job
    where id = any (array(select h.id from treadle.job_history as h where h.id = any (v_ids)));
    return coalesce(cardinality(v_ids), 0);
end
$$;

-- One job without a unique key: what most calls are. Arrays of one would cost a third more.
create function treadle.insert_one_1(
    p_now float8,
    p_id text, p_queue text, p_task text, p_args text, p_priority int2, p_delay float8, p_run_at float8,
    p_max_attempts int4, p_timeout float8, p_pinned boolean, p_format int2, p_tags text, p_meta text, p_reason text
) returns boolean
language plpgsql
as $$
declare
    v_clock timestamptz := coalesce(to_timestamp(p_now), clock_timestamp());
    v_id uuid := p_id::uuid;
begin
    insert into treadle.job (
        id, queue, task, args, priority, run_at, created_at, max_attempts, timeout, pinned, format, tags, meta, reason
    )
    values (
        v_id, p_queue, p_task, p_args, coalesce(p_priority, 0),
        case
            when p_run_at is not null then greatest(v_clock, to_timestamp(p_run_at))
            when p_delay is not null then v_clock + p_delay * interval '1 second'
            else v_clock
        end,
        v_clock, p_max_attempts, p_timeout, coalesce(p_pinned, false), coalesce(p_format, 1), p_tags::text[], p_meta,
        p_reason
    )
    on conflict do nothing;
    -- Under a new snapshot: see insert_1.
    if exists (select from treadle.job_history as h where h.id = v_id) then
        delete from treadle.job as j where j.id = v_id;
    end if;
    return true;
end
$$;

-- New jobs of which some have unique keys, one by one and in the order of their keys, so that two callers with the same
-- keys wait for each other rather than block each other. Answers with (number, id, outcome).
create function treadle.insert_keyed_1(
    p_now float8,
    p_ids text[], p_queues text[], p_tasks text[], p_args text[], p_priorities int2[], p_delays float8[],
    p_run_ats float8[], p_max_attempts int4[], p_timeouts float8[], p_pinned boolean[], p_formats int2[],
    p_tags text[], p_metas text[], p_reasons text[],
    p_keys text[], p_periods float8[], p_holds boolean[], p_replaces boolean[]
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
    v_tries integer;
begin
    -- The order of insertion is that of the request, whatever order they are written in.
    select array_agg(nextval(pg_get_serial_sequence('treadle.job', 'seq')) order by o) into v_seqs
    from generate_series(1, cardinality(p_ids)) as o;
    for v_new in
        select u.*, u.key || coalesce('@' || floor(v_seconds / u.period)::bigint || '#', '') as full_key
        from unnest(
            p_ids::uuid[], p_queues, p_tasks, p_args, p_priorities, p_delays, p_run_ats, p_max_attempts, p_timeouts,
            p_pinned, p_formats, p_tags, p_metas, p_reasons, p_keys, p_periods, p_holds, p_replaces
        ) with ordinality as u (
            id, queue, task, args, priority, delay, run_at, max_attempts, timeout, pinned, format, tags, meta, reason,
            key, period, holds, replaces, number
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
                v_due, v_clock, v_new.max_attempts, v_new.timeout, coalesce(v_new.pinned, false),
                coalesce(v_new.format, 1), v_new.tags::text[], v_new.meta, v_new.reason, v_key
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
                if v_new.replaces then
                    update treadle.job as j
                    set
                        args = v_new.args, format = coalesce(v_new.format, 1), run_at = v_due,
                        priority = coalesce(v_new.priority, 0), tags = v_new.tags::text[], meta = v_new.meta,
                        reason = v_new.reason, attempt = 0, crashes = 0
                    where j.id = v_holder and j.state = 'ready'
                    returning j.queue into v_queue;
                    if found then
                        outcome := 'replaced';
                        if not exists (
                            select from treadle.lane as l
                            where l.queue = v_queue and l.priority = coalesce(v_new.priority, 0)
                        ) then
                            perform treadle.ensure_1(array[v_queue], array[coalesce(v_new.priority, 0)::int2]);
                        end if;
                    end if;
                end if;
                exit;
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

-- Take due jobs for a pod. Why this shape
-- -----------------------------------------
-- * A lane is (queue, priority, kind of place). Each is read from its own place in job_lane, in the stored order, and no
--   further than there is room: nothing is sorted, and lanes that are not reached are not touched.
-- * First the rows are locked, passing over what others have locked; then they are updated by their place in the table
--   (ctid), which no plan can get wrong. State is tested again where it is written. (A join with the list of chosen ids
--   cost 505 µs a job under a generic plan.)
-- * `p_after_at, p_after_seq` is the lane's watermark: rows at or before it are passed over *by the index*. Jobs that
--   have been claimed and finished leave dead entries in front of the lane until vacuum removes them, and a session
--   with an old snapshot keeps vacuum from doing so; walking over them at every claim took claims from 1.5 ms to 45.
--   It is a hint, kept by the caller and given up at every sweep.
-- * The gate (paused, cool_until) is read by the statement that locks. So a pause that is committed is obeyed.
-- * With several kinds of places (`p_merge`), each lane gives as many as it has room for, and the order of the queue
--   decides between them; the rest are let go at the commit.
-- * The commit does not wait for the disk: a claim that is lost with the server is a job that is claimable again, and
--   the finish of a lost claim is refused.
-- * It touches `job` by job_lane and by ctid only. It joins nothing but the queue's row: every join is a plan that can go
--   wrong on a table whose size changes a thousandfold within a minute.
--
-- The last row has no seq; its `rest` says what the caller should know: the clock, how long the scan took, and when the
-- next job falls due. If there are more lanes than the caller knows of (`p_known`), nothing is taken, and they are told
-- instead: a list that is kept would hide a new priority.
create function treadle.claim_1(
    p_now float8, p_steady float8, p_boot text, p_pod text, p_token text,
    p_queues text[], p_rooms int4[],
    p_wants int4[], p_lanes int4[], p_priorities int2[], p_tasks text[], p_places int4[],
    p_after_at float8[], p_after_seq int8[], p_merge boolean, p_known integer
) returns table (
    seq bigint, id text, queue text, task text, args text, format smallint, priority smallint, run_at float8,
    created_at float8, attempt integer, max_attempts integer, timeout float8, started_at float8, rest text
)
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(to_timestamp(p_now), statement_timestamp());
    v_clock timestamptz := coalesce(to_timestamp(p_now), clock_timestamp());
    v_steady timestamptz := coalesce(to_timestamp(p_steady), clock_timestamp());
    v_begun timestamptz := clock_timestamp();
    v_scan float8;
    v_places tid[];
    v_due timestamptz;
begin
    if not exists (
        select from treadle.pod as p
        where p.id = p_pod and not p.lost and not p.gone and p.boot = p_boot and p.lease_until > v_steady
    ) then
        return;
    end if;
    if (select count(*) from treadle.lane as l where l.queue = any (p_queues)) <> p_known then
        rest := json_build_object(
            'now', date_part('epoch', v_now),
            'scan', 0,
            'lanes', (
                select json_agg(json_build_array(l.queue, l.priority) order by l.queue, l.priority desc)
                from treadle.lane as l
                where l.queue = any (p_queues)
            )
        )::text;
        return next;
        return;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    if p_merge then
        select array(
            select r.place
            from (
                select w.queue, w.room, w.n
                from unnest(p_queues, p_rooms) with ordinality as w (queue, room, n)
                left join treadle.queue as q on q.name = w.queue
                where coalesce(
                    greatest(case when q.paused then coalesce(q.paused_until, 'infinity') end, q.cool_until) <= v_now,
                    true
                )
                offset 0
            ) as w
            cross join lateral (
                select k.place
                from (
                    select
                        c.place, l.priority, c.run_at, c.seq, l.places,
                        row_number() over (partition by l.lane order by l.priority desc, c.run_at, c.seq) as number
                    from (
                        select u.*, string_to_array(u.tasks, chr(31)) as names
                        from unnest(
                            p_wants, p_lanes, p_priorities, p_tasks, p_places, p_after_at, p_after_seq
                        ) as u (want, lane, priority, tasks, places, after_at, after_seq)
                        offset 0
                    ) as l
                    cross join lateral (
                        select j.ctid as place, j.run_at, j.seq
                        from treadle.job as j
                        where
                            j.queue = w.queue
                            and j.priority = l.priority
                            and (j.run_at, j.seq) > (to_timestamp(l.after_at), l.after_seq)
                            and j.run_at <= v_now
                            and j.state = 'ready'
                            and j.task = any (l.names)
                        order by j.run_at, j.seq
                        limit least(l.places, w.room)
                        for update skip locked
                    ) as c
                    where l.want = w.n
                ) as k
                where k.number <= k.places
                order by k.priority desc, k.run_at, k.seq
                limit w.room
            ) as r
        ) into v_places;
    else
        select array(
            select r.place
            from (
                select w.queue, w.room, w.n
                from unnest(p_queues, p_rooms) with ordinality as w (queue, room, n)
                left join treadle.queue as q on q.name = w.queue
                where coalesce(
                    greatest(case when q.paused then coalesce(q.paused_until, 'infinity') end, q.cool_until) <= v_now,
                    true
                )
                offset 0
            ) as w
            cross join lateral (
                select c.place
                from (
                    select u.*, string_to_array(u.tasks, chr(31)) as names
                    from unnest(
                        p_wants, p_lanes, p_priorities, p_tasks, p_places, p_after_at, p_after_seq
                    ) as u (want, lane, priority, tasks, places, after_at, after_seq)
                    offset 0
                ) as l
                cross join lateral (
                    select j.ctid as place
                    from treadle.job as j
                    where
                        j.queue = w.queue
                        and j.priority = l.priority
                        and (j.run_at, j.seq) > (to_timestamp(l.after_at), l.after_seq)
                        and j.run_at <= v_now
                        and j.state = 'ready'
                        and j.task = any (l.names)
                    order by j.run_at, j.seq
                    limit least(l.places, w.room)
                    for update skip locked
                ) as c
                where l.want = w.n
                limit w.room
            ) as r
        ) into v_places;
    end if;
    v_scan := date_part('epoch', clock_timestamp() - v_begun);
    if cardinality(v_places) > 0 then
        return query
        update treadle.job as j
        set
            state = 'running',
            pod = p_pod,
            slot = null,
            token = p_token,
            started_at = v_clock,
            deadline = case when j.timeout > 0 then v_clock + least(j.timeout, 1e9) * interval '1 second' end,
            attempt = j.attempt + 1
        where j.ctid = any (v_places) and j.state = 'ready'
        returning
            j.seq, j.id::text, j.queue, j.task, j.args, j.format, j.priority, date_part('epoch', j.run_at),
            date_part('epoch', j.created_at), j.attempt, j.max_attempts, j.timeout, date_part('epoch', j.started_at),
            -- What most jobs do not have travels as one column, which most rows leave empty.
            case
                when
                    j.pinned or j.cancel_wanted or j.error_count > 0 or j.crashes > 0 or j.snoozes > 0
                    or j.throttles > 0 or j.unique_key is not null or j.tags is not null or j.meta is not null
                    or j.reason is not null or j.warning is not null
                then json_build_object(
                    'pinned', j.pinned, 'cancel_wanted', j.cancel_wanted, 'error_count', j.error_count,
                    'crashes', j.crashes, 'snoozes', j.snoozes, 'throttles', j.throttles, 'unique_key', j.unique_key,
                    'tags', coalesce(j.tags, '{}'), 'meta', j.meta, 'reason', j.reason, 'warning', j.warning,
                    'errors', case
                        when j.error_count > 0 then (
                            select json_agg(json_build_array(date_part('epoch', e.ended_at), e.entry))
                            from treadle.job_error as e
                            where e.job_id = j.id and e.n = j.error_count
                        )
                    end
                )::text
            end;
    end if;
    select min(w.at) into v_due
    from (
        select
            case
                when w.closed_until > v_now then w.closed_until
                else (
                    select min(c.run_at)
                    from (
                        select u.want, u.priority, string_to_array(u.tasks, chr(31)) as names
                        from unnest(p_wants, p_priorities, p_tasks) as u (want, priority, tasks)
                        where u.want = w.n
                        offset 0
                    ) as l
                    cross join lateral (
                        select s.run_at
                        from (
                            -- Jobs of tasks that nobody here knows are passed over, but not for ever.
                            select j.run_at, j.task, j.state
                            from treadle.job as j
                            where j.queue = w.queue and j.priority = l.priority and j.run_at > v_now
                            order by j.run_at, j.seq
                            limit 100
                        ) as s
                        where s.state = 'ready' and s.task = any (l.names)
                        order by s.run_at
                        limit 1
                    ) as c
                )
            end as at
        from (
            select
                w.queue, w.n,
                greatest(case when q.paused then coalesce(q.paused_until, 'infinity') end, q.cool_until)
                    as closed_until
            from unnest(p_queues) with ordinality as w (queue, n)
            left join treadle.queue as q on q.name = w.queue
            offset 0
        ) as w
    ) as w;
    rest := json_build_object(
        'now', date_part('epoch', v_now),
        'scan', v_scan,
        'due', case when v_due < 'infinity' then greatest(0.0, date_part('epoch', v_due - v_now)) end
    )::text;
    return next;
end
$$;

-- End many runs at once: (id, token) must be the run that is under way, and the row moves to job_history in the same
-- statement. Answers with the ids that it ended; the others are stale, repeated or wait for a cancel.
--
-- Why this shape: `id = any` finds the rows by their primary key, whatever the planner believes the table to be, and the
-- join with what is to be written is a hash join of two lists that have as many members. Joined without `any`, the plan
-- of an empty table reads the whole table for every member (measured: 7 s for 1,000 finishes of 30,000 jobs).
create function treadle.finish_1(
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

-- Give many runs back: retries, snoozes, releases. The same shape as `finish_1`.
create function treadle.return_1(
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

-- Renew a lease, note which runs are under way, and say what concerns the pod. One JSON text.
create function treadle.beat_1(
    p_now float8, p_steady float8, p_boot text, p_pod text, p_lease float8, p_renew boolean,
    p_ids text[], p_tokens text[], p_slots text[], p_suspects text[], p_small bigint
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
begin
    if p_renew then
        update treadle.pod as p
        set lease_until = v_steady + p_lease * interval '1 second', beat_at = v_clock, swept = false
        where p.id = p_pod and not p.lost and not p.gone and p.boot = p_boot;
    else
        perform from treadle.pod as p where p.id = p_pod and not p.lost and not p.gone and p.boot = p_boot;
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
    return json_build_object(
        'now', date_part('epoch', v_clock),
        'held', coalesce(v_held, '[]'),
        'queues', coalesce((
            select json_agg(json_build_object(
                'name', q.name, 'version', q.version, 'paused', q.paused, 'paused_by', q.paused_by,
                'paused_at', date_part('epoch', q.paused_at), 'pause_reason', q.pause_reason,
                'paused_until', date_part('epoch', q.paused_until), 'max_workers', q.max_workers,
                'cool_until', date_part('epoch', q.cool_until), 'cool_exponent', q.cool_exponent
            ) order by q.name)
            from treadle.queue as q
        ), '[]'),
        'live_pods', (
            select count(*)
            from treadle.pod as p
            where not p.lost and not p.gone and p.boot = p_boot and p.lease_until > v_steady
        )
    )::text;
end
$$;

-- For psql, triggers and other languages: one job, with the checks that the Python client makes. Wake workers by
-- `select pg_notify('treadle:treadle', queue)` after the commit, if a second is too long.
create function treadle.enqueue(
    task text,
    args text default '{}',
    queue text default 'default',
    delay interval default '0',
    run_at timestamptz default null,
    priority integer default 0,
    max_attempts integer default null,
    timeout interval default null,
    tags text[] default null,
    reason text default null,
    meta text default null,
    unique_key text default null,
    id uuid default null
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    v_name constant text := '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$';
    v_id uuid := coalesce(id, encode(
        set_byte(
            set_byte(
                overlay(
                    uuid_send(gen_random_uuid())
                    placing substring(int8send((date_part('epoch', clock_timestamp()) * 1000)::int8) from 3) from 1 for 6
                ),
                6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112
            ),
            8, (get_byte(uuid_send(gen_random_uuid()), 8) & 63) | 128
        ),
        'hex'
    )::uuid);
begin
    if task is null or task !~ v_name then
        raise exception 'task name % is not allowed', quote_nullable(task) using errcode = '22023';
    end if;
    if queue is null or queue !~ v_name then
        raise exception 'queue name % is not allowed', quote_nullable(queue) using errcode = '22023';
    end if;
    if priority is null or priority not between -100 and 100 then
        raise exception 'priority % is not between -100 and 100', priority using errcode = '22023';
    end if;
    if max_attempts not between 1 and 1000 then
        raise exception 'max_attempts % is not between 1 and 1000', max_attempts using errcode = '22023';
    end if;
    if timeout < interval '0' or delay < interval '0' then
        raise exception 'a delay or timeout below zero is not allowed' using errcode = '22023';
    end if;
    if args is null or json_typeof(args::json) <> 'object' then
        raise exception 'args must be one JSON object: a name and a value for each argument' using errcode = '22023';
    end if;
    if octet_length(args) > 1048576 then
        raise exception 'args has % bytes, and 1 MiB is the most', octet_length(args) using errcode = '22023';
    end if;
    if json_typeof(meta::json) <> 'object' then
        raise exception 'meta must be one JSON object' using errcode = '22023';
    end if;
    if cardinality(tags) > 20 or exists (select from unnest(tags) as tag where length(tag) not between 1 and 100) then
        raise exception 'at most 20 tags of 1 to 100 characters' using errcode = '22023';
    end if;
    if length(reason) > 1024 then
        raise exception 'reason has % characters, and 1024 is the most', length(reason) using errcode = '22023';
    end if;
    if length(unique_key) not between 1 and 512 then
        raise exception 'unique_key must have 1 to 512 characters' using errcode = '22023';
    end if;
    select k.id::uuid into v_id
    from treadle.insert_keyed_1(
        null, array[v_id::text], array[queue], array[task], array[args], array[priority::int2],
        array[date_part('epoch', delay)], array[date_part('epoch', run_at)], array[max_attempts],
        array[date_part('epoch', timeout)], array[max_attempts is not null or timeout is not null], array[1::int2],
        array[nullif(tags, '{}')::text], array[meta], array[reason],
        array[
            case when left(unique_key, 1) = '#' then '#' else '' end || unique_key
            || case when right(unique_key, 1) = '#' then '#' else '' end
        ],
        array[null::float8], array[false], array[false]
    ) as k;
    return v_id;
end
$$;
