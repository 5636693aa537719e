-- Inserts the holds of granted claims, all of one instance.
insert into holds (wallet_id, operation_id, permit_id, tool, credits, value_amount, instance_id)
select k.wallet_id, k.operation_id, k.permit_id, k.tool, k.credits, k.value_amount, $7::uuid
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
    as k (wallet_id, operation_id, permit_id, tool, credits, value_amount)
