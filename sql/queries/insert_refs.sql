-- Takes operation references for the claims granted in this transaction. operation_refs_pkey is the last guard
-- of "one effect for each reference".
insert into operation_refs (wallet_id, tool, reference, operation_id)
select k.wallet_id, k.tool, k.reference, k.operation_id
from unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) as k (wallet_id, tool, reference, operation_id)
