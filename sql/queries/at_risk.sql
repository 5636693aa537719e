-- No lock. What waits for a reconciliation, by the currency of its value; sums stop at the largest integer.
-- Index: operations_id.
select coalesce(o.value_currency, ''), count(*), least(sum(u.charged), 9223372036854775807)::bigint,
    least(coalesce(sum(o.value_amount), 0), 9223372036854775807)::bigint, min(u.since_ms)
from uncertain u
join operations o on o.id = u.operation_id and o.wallet_id = u.wallet_id
where $1::text[] is null or u.wallet_id = any($1)
group by 1
order by 1
