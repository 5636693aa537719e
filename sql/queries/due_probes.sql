-- Picks uncertain operations whose tool's probe is due, and writes the time of its next try before it is asked.
-- Rows that another gateway picks at this moment are left to it. $1 to $4 are the tools with the first, the
-- longest and the last wait in milliseconds. Index: operations_id.
with due as (
    select u.wallet_id, u.operation_id, p.first_ms, p.longest_ms
    from uncertain u
    join unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) as p (tool, first_ms, longest_ms, give_up_ms)
        on p.tool = u.tool
    where coalesce(u.probe_at, to_timestamp((u.since_ms + p.first_ms) / 1000.0)) <= clock_timestamp()
        and to_timestamp((u.since_ms + p.give_up_ms) / 1000.0) > clock_timestamp()
    order by u.wallet_id, u.operation_id
    limit $5
    for update of u skip locked
), picked as (
    update uncertain u
    set probes = u.probes + 1,
        probe_at = clock_timestamp() + interval '1 millisecond' * least(d.longest_ms, d.first_ms * power(2, least(u.probes + 1, 30)))
    from due d
    where u.wallet_id = d.wallet_id and u.operation_id = d.operation_id
    returning u.wallet_id, u.operation_id, u.tool, u.probes
)
select k.operation_id, o.operation_key, k.tool, k.probes
from picked k
join operations o on o.id = k.operation_id and o.wallet_id = k.wallet_id
