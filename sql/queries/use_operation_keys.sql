-- Gives locked operation keys to operations. The CHECK of uses is the guard: a key that was used meanwhile breaks the
-- transaction. Index: operation_keys_pkey.
update operation_keys p
set uses = p.uses + 1, wallet_id = k.wallet_id, operation_id = k.operation_id
from unnest($1::text[], $2::text[], $3::uuid[]) as k (key, wallet_id, operation_id)
where p.key = k.key
