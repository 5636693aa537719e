-- No lock of its own; run after the wallets are locked. Which of these rounds an instance goes on with: the answer after a
-- COMMIT whose answer was lost. Index: holds_pkey.
select h.operation_id
from unnest($1::text[], $2::uuid[], $3::bigint[]) as k (wallet_id, operation_id, number)
join holds h on h.wallet_id = k.wallet_id and h.operation_id = k.operation_id
where h.instance_id = $4::uuid and h.round = k.number
