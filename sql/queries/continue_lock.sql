-- Locks parked holds in id order, after wallets and permit usage: rounds that are still open under these numbers, with all
-- that is needed to go on. One that somebody has taken meanwhile is not among them. Indexes: holds_pkey, rounds_pkey,
-- operations_id, permits_pkey.
select h.wallet_id, h.operation_id, h.permit_id, h.tool, h.credits, h.value_amount, o.key, o.agent_id, o.key_source,
    o.tool_sha256, o.request_hash, o.arguments, o.value_currency, o.value_amount, o.started_ms, encode(p.sha256, 'hex'),
    coalesce(o.reference, ''), h.instance_id, h.round, o.operation_key, r.expires_ms,
    (extract(epoch from p.expires_at) * 1000)::bigint
from unnest($1::text[], $2::uuid[], $3::bigint[]) as k (wallet_id, operation_id, number)
join holds h on h.wallet_id = k.wallet_id and h.operation_id = k.operation_id
join rounds r on r.wallet_id = k.wallet_id and r.operation_id = k.operation_id and r.number = k.number
join operations o on o.id = k.operation_id and o.wallet_id = k.wallet_id
join permits p on p.id = h.permit_id
where h.instance_id = '00000000-0000-0000-0000-000000000000' and h.round = k.number
order by h.wallet_id, h.operation_id
for update of h
