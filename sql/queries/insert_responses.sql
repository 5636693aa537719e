-- Inserts the results that were answered.
insert into responses (wallet_id, operation_id, result)
select k.wallet_id, k.operation_id, k.result
from unnest($1::text[], $2::uuid[], $3::bytea[]) as k (wallet_id, operation_id, result)
