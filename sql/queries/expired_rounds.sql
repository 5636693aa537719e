-- No lock: settling takes them. Parked operations whose round nobody has answered in time. Indexes: rounds_expiry,
-- holds_pkey, operations_id, permits_pkey.
select h.wallet_id, h.operation_id, h.permit_id, h.tool, h.credits, h.value_amount, o.key, o.agent_id, o.key_source,
    o.tool_sha256, o.request_hash, o.arguments, o.value_currency, o.value_amount, o.started_ms, encode(p.sha256, 'hex'),
    coalesce(o.reference, ''), h.instance_id, h.round
from rounds r
join holds h on h.wallet_id = r.wallet_id and h.operation_id = r.operation_id
join operations o on o.id = h.operation_id and o.wallet_id = h.wallet_id
join permits p on p.id = h.permit_id
where r.expires_ms <= (extract(epoch from now()) * 1000)::bigint
    and h.instance_id = '00000000-0000-0000-0000-000000000000' and h.round = r.number
order by r.expires_ms
limit $1
