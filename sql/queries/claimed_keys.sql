-- No lock of its own; run after the wallets are locked, so that it sees every claim of an earlier holder
-- of those locks. Index: operations_pkey.
select o.wallet_id, o.key
from unnest($1::text[], $2::text[]) as k (wallet_id, key)
join operations o on o.wallet_id = k.wallet_id and o.key = k.key
