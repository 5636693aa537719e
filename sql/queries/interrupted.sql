-- No lock: settling takes them. Open holds of instances that have ended or have not been heard of for their own
-- lease; what waits for input (the zero instance) is nobody's. The asker ($2) is alive, and hears of others only since
-- $3 milliseconds. The holds table is as small as what is in flight, so it is read whole.
select h.wallet_id, h.operation_id, h.permit_id, h.tool, h.credits, h.value_amount, o.key, o.agent_id, o.key_source,
    o.tool_sha256, o.request_hash, o.arguments, o.value_currency, o.value_amount, o.started_ms, encode(p.sha256, 'hex'),
    coalesce(o.reference, ''), h.instance_id, h.round
from holds h
join operations o on o.id = h.operation_id and o.wallet_id = h.wallet_id
join permits p on p.id = h.permit_id
left join instances i on i.id = h.instance_id
where h.instance_id <> $2 and h.instance_id <> '00000000-0000-0000-0000-000000000000'
    and (i.id is null or i.heartbeat_at = 'epoch'
        or (i.heartbeat_at < now() - i.lease_ms * interval '1 millisecond' and i.lease_ms <= $3::bigint))
limit $1
