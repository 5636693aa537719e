-- Locks wallets in id order, then permit usage rows in id order: the first two of the lock order. The usage
-- rows are sorted after the wallets they are joined with have been read, and so locked, whole. A wallet
-- without such a permit comes with nulls. Indexes: wallets_pkey, permit_usage_pkey.
with w as materialized (
    select id, frozen, deposited, committed
    from wallets
    where id = any($1::text[])
    order by id
    for update
), u as materialized (
    select u.wallet_id, u.permit_id, u.credits_committed, u.calls_total, u.calls::text as calls, u.value_committed,
        u.revoked_at is not null as revoked
    from permit_usage u
    where (u.wallet_id, u.permit_id) in (
        select k.wallet_id, k.permit_id
        from unnest($2::text[], $3::text[]) as k (wallet_id, permit_id)
        join w on w.id = k.wallet_id
    )
    order by u.wallet_id, u.permit_id
    for update
)
select w.id, w.frozen, w.deposited, w.committed,
    u.permit_id, u.credits_committed, u.calls_total, u.calls, u.value_committed, u.revoked
from w
left join u on u.wallet_id = w.id
