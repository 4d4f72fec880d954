-- compatible_from: 1
--
-- What pods say of themselves, what operators want of them, and their shares of the queues' max_workers.
alter table treadle_pod add column stats text;
alter table treadle_pod add column wish text not null default 'serve';
alter table treadle_pod add column wish_by text;
alter table treadle_pod add column stacks text;
alter table treadle_pod add column stacks_at real;
alter table treadle_pod add column stacks_asked real;

create table treadle_share (
    queue text    not null,
    pod   text    not null,
    share integer not null,
    primary key (pod, queue)
) without rowid;
