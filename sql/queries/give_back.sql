-- Moves the counters of locked wallets and permits when something is given back, one net row each.
with w as (
    update wallets w
    set committed = w.committed + k.delta
    from unnest($1::text[], $2::bigint[]) as k (id, delta)
    where w.id = k.id
)
update permit_usage u
set credits_committed = u.credits_committed + k.credits,
    calls_total = u.calls_total + k.calls_total,
    calls = k.calls::jsonb,
    value_committed = u.value_committed + k.value_amount
from unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::bigint[])
    as k (wallet_id, permit_id, credits, calls_total, calls, value_amount)
where u.wallet_id = k.wallet_id and u.permit_id = k.permit_id
