-- No lock. One wallet, with the sum of its open holds from the same snapshot. Index: wallets_pkey, holds_pkey.
select w.id, w.name, w.frozen, w.deposited, w.committed, w.created_at,
    (select coalesce(sum(h.credits), 0)::bigint from holds h where h.wallet_id = w.id)
from wallets w
where w.id = $1
