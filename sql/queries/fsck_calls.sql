-- No lock. Calls taken of each permit by tool, settled and held.
select wallet_id, permit_id, tool, sum(calls)::bigint
from (
    select o.wallet_id, o.permit_id, o.tool, r.calls_kept as calls
    from receipts r join operations o on o.id = r.id and o.wallet_id = r.wallet_id
    union all
    select wallet_id, permit_id, tool, 1 from holds
) k
group by wallet_id, permit_id, tool
