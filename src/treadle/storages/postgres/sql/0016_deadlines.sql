-- compatible_from: 2
--
-- A job that nothing gives a timeout has no deadline. claim_live_1 is replaced in its place, so that workers of the
-- version before claim rightly, too; but for the deadline it is that of 0005. (`least` passes over nulls: such a job,
-- claimed where one of the queues has aging or a timeout, had a deadline 1e9 seconds away.)
create or replace function treadle.claim_live_1(
    p_now float8, p_pod text, p_token text,
    p_queues text[], p_rooms int4[],
    p_wants int4[], p_lanes int4[], p_priorities int2[], p_tasks text[], p_places int4[],
    p_after_at float8[], p_after_seq int8[]
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
    v_begun timestamptz := clock_timestamp();
    v_scan float8;
    v_places tid[];
    v_seqs bigint[];
    v_due timestamptz;
begin
    perform set_config('synchronous_commit', 'off', true);
    select array_agg(r.place), array_agg(r.seq) into v_places, v_seqs
    from (
        select r.place, r.seq
        from (
            select w.queue, w.room, w.n, q.aging
            from unnest(p_queues, p_rooms) with ordinality as w (queue, room, n)
            left join treadle.queue as q on q.name = w.queue
            where coalesce(
                greatest(case when q.paused then coalesce(q.paused_until, 'infinity') end, q.cool_until) <= v_now,
                true
            )
            offset 0
        ) as w
        cross join lateral (
            select k.place, k.seq
            from (
                select
                    c.place, c.aged, c.run_at, c.seq, l.places,
                    row_number() over (partition by l.lane order by c.aged desc, c.run_at, c.seq) as number
                from (
                    select u.*, string_to_array(u.tasks, chr(31)) as names
                    from unnest(
                        p_wants, p_lanes, p_priorities, p_tasks, p_places, p_after_at, p_after_seq
                    ) as u (want, lane, priority, tasks, places, after_at, after_seq)
                    offset 0
                ) as l
                cross join lateral (
                    select
                        j.ctid as place, j.run_at, j.seq,
                        least(
                            100,
                            l.priority + coalesce(floor(date_part('epoch', v_now - j.run_at) / w.aging), 0)
                        ) as aged
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
            order by k.aged desc, k.run_at, k.seq
            limit w.room
        ) as r
    ) as r;
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
            deadline = (
                select case when t.timeout > 0 then v_clock + least(t.timeout, 1e9) * interval '1 second' end
                from (
                    select coalesce(
                        case
                            when not j.pinned then (select q.timeout from treadle.queue as q where q.name = j.queue)
                        end,
                        j.timeout
                    ) as timeout
                ) as t
            ),
            attempt = j.attempt + 1
        where j.ctid = any (v_places) and j.state = 'ready'
        returning
            j.seq, j.id::text, j.queue, j.task, j.args, j.format, j.priority, date_part('epoch', j.run_at),
            date_part('epoch', j.created_at), j.attempt, j.max_attempts,
            coalesce(
                case when not j.pinned then (select q.timeout from treadle.queue as q where q.name = j.queue) end,
                j.timeout
            ),
            date_part('epoch', j.started_at),
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
        'order', v_seqs,
        'due', case when v_due < 'infinity' then greatest(0.0, date_part('epoch', v_due - v_now)) end
    )::text;
    return next;
end
$$;
