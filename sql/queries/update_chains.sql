-- Moves locked chain heads, one row a wallet.
update chains c
set seq = k.seq, head = k.head
from unnest($1::text[], $2::bigint[], $3::text[]) as k (wallet_id, seq, head)
where c.wallet_id = k.wallet_id
