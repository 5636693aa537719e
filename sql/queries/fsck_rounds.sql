-- No lock. Parked holds without their round, and rounds whose operation is not parked in them.
select coalesce(h.wallet_id, r.wallet_id), coalesce(h.operation_id, r.operation_id), h.operation_id is not null, r.operation_id is not null
from (
    select h.wallet_id, h.operation_id, h.round
    from holds h
    where h.instance_id = '00000000-0000-0000-0000-000000000000'
) h
full join rounds r on r.wallet_id = h.wallet_id and r.operation_id = h.operation_id
where h.operation_id is null or r.operation_id is null or h.round <> r.number
limit 1
