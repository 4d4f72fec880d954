-- What is about to be taken, as one text: beside a busy event loop, each row of an answer costs a struggle for the
-- interpreter. ?1 has the numbers in their order.
--
-- SQLite writes fifteen digits of a number into JSON: so times come as whole numbers of 2^-31 seconds, which is what
-- every double from 1970-01-25 to 2106 is. The last column says that there is more to be read: a number that fits
-- neither way, long arguments (which would be escaped and read back for nothing, so they are left out here), or a column
-- that most jobs leave empty.
select json_group_array(
    json_array(
        seq,
        id,
        task,
        iif(length(args) > 4096, '', args),
        format,
        priority,
        cast(run_at * 2147483648.0 as integer),
        cast(created_at * 2147483648.0 as integer),
        attempt + 1,
        max_attempts,
        timeout,
        pinned or error_count or crashes or snoozes or throttles or cancel_wanted or tags is not null
        or meta is not null or reason is not null or unique_key is not null or result is not null
        or warning is not null or length(args) > 4096
        or timeout is not cast(timeout * 1000 + 0.5 as integer) / 1000.0
        or run_at not between 2097152.0 and 4294967295.0 or created_at not between 2097152.0 and 4294967295.0
    )
)
from (select value as chosen from json_each(?1))
cross join treadle_job on seq = chosen
