-- No lock. Operations without an outcome that are in state $5, in order of their time-ordered ids; filters as in
-- list_operations. Each has a hold, and the holds table is as small as what is in flight, so it is read whole.
-- Index: operations_id, rounds_pkey.
select o.id, o.wallet_id, o.key, o.key_source, o.operation_key, o.permit_id, o.agent_id, o.tool, o.authorized, o.started_ms, o.value_currency, o.value_amount,
    coalesce(o.reference, ''), o.reference is not null, null::uuid,
    '', '', 0::bigint, 0::bigint, h.credits, '', '', null::bytea, null::timestamptz, '', '', '', 0::bigint, '', 0::bigint,
    n.number, n.asked_ms, n.expires_ms
from holds h
join operations o on o.id = h.operation_id and o.wallet_id = h.wallet_id
left join rounds n on n.wallet_id = h.wallet_id and n.operation_id = h.operation_id
where o.id > $1
    and ($2::text[] is null or o.wallet_id = any($2))
    and ($3::text is null or o.agent_id = $3) and ($4::text is null or o.permit_id = $4)
    and $5 = case when n.number is null then 'dispatching' else 'awaiting_input' end
order by o.id
limit $6
