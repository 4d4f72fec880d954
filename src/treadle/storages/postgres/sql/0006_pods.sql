-- compatible_from: 2
--
-- What pods say of themselves, what operators want of them, and their shares of the queues' max_workers.
alter table treadle.pod
    add column stats text,
    add column wish text not null default 'serve'
        constraint pod_wish check (wish in ('serve', 'quiet', 'stop')),
    add column wish_by text,
    add column stacks text,
    add column stacks_at timestamptz,
    add column stacks_asked timestamptz;

create table treadle.share (
    queue text    not null,
    pod   text    not null,
    share integer not null,
    constraint share_pkey primary key (pod, queue),
    constraint share_share check (share >= 0)
) with (fillfactor = 50);

-- beat_1, which also takes what the pod says of itself and answers with what operators and the Balancer want of it. The
-- queues are read beside it.
create function treadle.beat_pod_1(
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
    with live as (
        select p.card, p.wish = 'serve' and coalesce(p.stats::json ->> 'quiet', 'false') <> 'true' as serves
        from treadle.pod as p
        where not p.lost and not p.gone and p.boot = p_boot and p.lease_until > v_steady
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
    ) into v_live;
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
