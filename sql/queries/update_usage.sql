-- Moves the counters of locked permit usage rows, one net row each. The row's CHECKs are the last guard of I7.
update permit_usage u
set credits_committed = u.credits_committed + k.credits,
    calls_total = u.calls_total + k.calls_total,
    calls = k.calls::jsonb,
    value_committed = u.value_committed + k.value_amount
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
    as k (wallet_id, permit_id, credits, calls_total, calls, value_amount)
where u.wallet_id = k.wallet_id and u.permit_id = k.permit_id
