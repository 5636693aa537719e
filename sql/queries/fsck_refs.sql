-- No lock. References that are held by an operation that has another one or was not delivered, and operations that run,
-- are uncertain or were delivered and do not hold theirs, unless an operator released it.
select coalesce(f.wallet_id, o.wallet_id), coalesce(f.operation_id, o.id), f.operation_id is not null
from (
    select o.wallet_id, o.id, o.tool, o.reference
    from operations o
    left join reconciliations c on c.wallet_id = o.wallet_id and c.operation_id = o.id
    left join receipts r on r.id = o.id and r.wallet_id = o.wallet_id
    left join receipts d on d.id = c.receipt_id and d.wallet_id = c.wallet_id
    where o.reference is not null and (r.id is null or coalesce(d.calls_kept, r.calls_kept) = 1)
        and not exists (
            select 1 from audit a where a.action = 'operation.reference_released' and a.subject = 'op_' || o.id::text
        )
) o
full join operation_refs f
    on f.wallet_id = o.wallet_id and f.operation_id = o.id and f.tool = o.tool and f.reference = o.reference
where f.operation_id is null or o.id is null
limit 1
