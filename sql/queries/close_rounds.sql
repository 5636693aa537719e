-- Takes away the rounds of parked holds that this transaction has deleted: nobody has answered in time. Index: rounds_pkey.
delete from rounds r
using unnest($1::text[], $2::uuid[], $3::bigint[]) as k (wallet_id, operation_id, number)
where r.wallet_id = k.wallet_id and r.operation_id = k.operation_id and r.number = k.number
