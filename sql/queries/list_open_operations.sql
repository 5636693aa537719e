-- No lock. Operations that run, in order of their time-ordered ids; filters as in list_operations. Each has a hold, and
-- the holds table is as small as what is in flight, so it is read whole. Index: operations_id, receipts_id.
select o.id, o.wallet_id, o.key, o.key_source, o.operation_key, o.permit_id, o.agent_id, o.tool, o.authorized, o.started_ms, o.value_currency, o.value_amount,
    coalesce(o.reference, ''), o.reference is not null, null::uuid,
    '', '', 0::bigint, 0::bigint, h.credits, '', '', null::bytea, null::timestamptz, '', '', '', 0::bigint, '', 0::bigint
from holds h
join operations o on o.id = h.operation_id and o.wallet_id = h.wallet_id
where o.id > $1
    and ($2::text[] is null or o.wallet_id = any($2))
    and ($3::text is null or o.agent_id = $3) and ($4::text is null or o.permit_id = $4)
order by o.id
limit $5
