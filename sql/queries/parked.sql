-- No lock of its own; run after the chain heads are locked. What has become of operations that could not be parked:
-- the round in which they wait, the round of their hold, and whether they have an outcome. Indexes: rounds_pkey,
-- holds_pkey, receipts_id.
select k.operation_id, r.number, r.expires_ms, h.round, c.id is not null
from unnest($1::text[], $2::uuid[]) as k (wallet_id, operation_id)
left join rounds r on r.wallet_id = k.wallet_id and r.operation_id = k.operation_id
left join holds h on h.wallet_id = k.wallet_id and h.operation_id = k.operation_id
left join receipts c on c.id = k.operation_id and c.wallet_id = k.wallet_id
