-- No lock. Uncertain operations that are not in the queue of reconciliations, entries that are of no such
-- operation or differ from it, and reconciliations that resolve none.
select coalesce(r.wallet_id, u.wallet_id), coalesce(r.id, u.operation_id), r.id is not null, u.operation_id is not null
from (
    select r.wallet_id, r.id, r.charged, r.ended_ms, o.tool
    from receipts r
    join operations o on o.id = r.id and o.wallet_id = r.wallet_id
    left join reconciliations c on c.wallet_id = r.wallet_id and c.operation_id = r.id
    where r.outcome = 'delivery_uncertain' and c.operation_id is null
) r
full join uncertain u on u.wallet_id = r.wallet_id and u.operation_id = r.id
where r.id is null or u.operation_id is null or u.charged <> r.charged or u.since_ms <> r.ended_ms or u.tool <> r.tool
union all
select c.wallet_id, c.operation_id, false, false
from reconciliations c
left join receipts f on f.id = c.operation_id and f.wallet_id = c.wallet_id
left join receipts r on r.id = c.receipt_id and r.wallet_id = c.wallet_id
where f.id is null or f.outcome <> 'delivery_uncertain' or f.charged <> c.charged_before
    or r.id is null or r.outcome <> 'reconciled' or r.operation_id <> c.operation_id
limit 1
