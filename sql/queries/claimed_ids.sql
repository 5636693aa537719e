-- No lock of its own; run after the wallets are locked. Which of these operations were committed: the
-- answer after a COMMIT whose answer was lost. Index: operations_id.
select o.id
from unnest($1::uuid[], $2::text[]) as k (id, wallet_id)
join operations o on o.id = k.id and o.wallet_id = k.wallet_id
