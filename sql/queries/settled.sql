-- No lock of its own; run after the chain heads are locked. Operations that have a terminal receipt, with its signing input,
-- or are still held, by somebody else or in another round, without one. Indexes: receipts_id, holds_pkey.
select k.id, coalesce(r.signing_input, '')
from unnest($1::uuid[], $2::text[]) as k (id, wallet_id)
left join receipts r on r.id = k.id and r.wallet_id = k.wallet_id
left join holds h on h.wallet_id = k.wallet_id and h.operation_id = k.id
where r.id is not null or h.operation_id is not null
