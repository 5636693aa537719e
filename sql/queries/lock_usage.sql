-- Locks permit usage rows in id order (after wallets). Index: permit_usage_pkey.
select u.wallet_id, u.permit_id, u.credits_committed, u.calls_total, u.calls::text, u.value_committed,
    u.revoked_at is not null
from permit_usage u
where (u.wallet_id, u.permit_id) in (select k.wallet_id, k.permit_id from unnest($1::text[], $2::text[]) as k (wallet_id, permit_id))
order by u.wallet_id, u.permit_id
for update
