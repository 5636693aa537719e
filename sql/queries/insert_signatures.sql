-- Stores signatures; the first one stored wins (Ed25519 is deterministic, so a second is the same).
insert into signatures (receipt_id, wallet_id, signature)
select k.receipt_id, k.wallet_id, k.signature
from unnest($1::uuid[], $2::text[], $3::bytea[]) as k (receipt_id, wallet_id, signature)
on conflict do nothing
