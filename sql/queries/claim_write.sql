-- T1 in one statement: the claims, the holds of those granted, and one net row for each locked wallet and
-- permit. operations_pkey is the last guard of I1, the CHECKs of the counters those of I6 and I7.
with o as (
    insert into operations (wallet_id, key, id, agent_id, permit_id, tool, tool_sha256, key_source, operation_key,
        request_hash, arguments, authorized, value_currency, value_amount, reference, started_ms)
    select k.wallet_id, k.key, k.id, k.agent_id, k.permit_id, k.tool, k.tool_sha256, k.key_source, k.operation_key,
        k.request_hash, k.arguments, k.authorized, k.value_currency, k.value_amount, k.reference, $15::bigint
    from unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[],
        $10::bytea[], $11::bytea[], $12::bigint[], $13::text[], $14::bigint[], $31::text[])
        as k (wallet_id, key, id, agent_id, permit_id, tool, tool_sha256, key_source, operation_key,
        request_hash, arguments, authorized, value_currency, value_amount, reference)
), h as (
    insert into holds (wallet_id, operation_id, permit_id, tool, credits, value_amount, instance_id)
    select k.wallet_id, k.operation_id, k.permit_id, k.tool, k.credits, k.value_amount, $22::uuid
    from unnest($16::text[], $17::uuid[], $18::text[], $19::text[], $20::bigint[], $21::bigint[])
        as k (wallet_id, operation_id, permit_id, tool, credits, value_amount)
), w as (
    update wallets w
    set committed = w.committed + k.delta
    from unnest($23::text[], $24::bigint[]) as k (id, delta)
    where w.id = k.id
)
update permit_usage u
set credits_committed = u.credits_committed + k.credits,
    calls_total = u.calls_total + k.calls_total,
    calls = k.calls::jsonb,
    value_committed = u.value_committed + k.value_amount
from unnest($25::text[], $26::text[], $27::bigint[], $28::bigint[], $29::text[], $30::bigint[])
    as k (wallet_id, permit_id, credits, calls_total, calls, value_amount)
where u.wallet_id = k.wallet_id and u.permit_id = k.permit_id
