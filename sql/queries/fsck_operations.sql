-- No lock. Operations that do not have exactly one of hold and terminal receipt, or whose hold differs.
select o.wallet_id, o.id, h.operation_id is not null, r.id is not null
from operations o
left join holds h on h.operation_id = o.id and h.wallet_id = o.wallet_id
left join receipts r on r.id = o.id and r.wallet_id = o.wallet_id
where (h.operation_id is null) = (r.id is null)
    or (h.operation_id is not null
        and (h.credits <> o.authorized or h.permit_id <> o.permit_id or h.tool <> o.tool
            or h.value_amount not in (0, coalesce(o.value_amount, 0))))
order by o.wallet_id, o.id
limit 1
