-- No lock. Calls taken of each permit by tool, settled and held. Of an operation's receipts the latest counts.
select wallet_id, permit_id, tool, sum(calls)::bigint
from (
    select o.wallet_id, o.permit_id, o.tool, r.calls_kept as calls
    from receipts r
    join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
    left join reconciliations c on c.wallet_id = r.wallet_id and c.operation_id = r.operation_id
    where r.id = coalesce(c.receipt_id, r.operation_id)
    union all
    select wallet_id, permit_id, tool, 1 from holds
) k
group by wallet_id, permit_id, tool
