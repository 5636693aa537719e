-- Moves the escrow counter of locked wallets, one net row each. The row's CHECKs are the last guard of I6.
update wallets w
set committed = w.committed + k.delta
from unnest($1::text[], $2::bigint[]) as k (id, delta)
where w.id = k.id
