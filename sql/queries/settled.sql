-- No lock of its own; run after the chain heads are locked. The signing inputs of operations that
-- already have their terminal receipt. Index: receipts_id.
select r.id, r.signing_input
from unnest($1::uuid[], $2::text[]) as k (id, wallet_id)
join receipts r on r.id = k.id and r.wallet_id = k.wallet_id
