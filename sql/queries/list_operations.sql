-- No lock. Operations in order of their time-ordered ids. $2 are the wallets that may be seen
-- or null for all, $3 an agent, $4 a permit, $5 a state of those that have an outcome. $1
-- bounds the receipts too, else a merge of both begins with the first there ever was. Index: operations_id,
-- reconciliations_pkey, receipts_id, holds_pkey, late_results_pkey, operation_refs_pkey, rounds_pkey.
select o.id, o.wallet_id, o.key, o.key_source, o.operation_key, o.permit_id, o.agent_id, o.tool, o.authorized, o.started_ms, o.value_currency, o.value_amount,
    coalesce(o.reference, ''), f.operation_id is not null, coalesce(d.id, r.id),
    coalesce(d.outcome, r.outcome, ''), coalesce(d.reason, r.reason, ''), coalesce(d.charged, r.charged, 0), coalesce(d.ended_ms, r.ended_ms, 0),
    coalesce(h.credits, 0), coalesce(l.outcome, ''), coalesce(l.reason, ''), l.result, l.arrived_at,
    coalesce(c.resolution, ''), coalesce(c.evidence, ''), coalesce(c.provider_reference, ''), coalesce(c.charged_before, 0),
    coalesce(c.actor, ''), coalesce(c.decided_ms, 0),
    n.number, n.asked_ms, n.expires_ms
from operations o
left join reconciliations c on c.wallet_id = o.wallet_id and c.operation_id = o.id
left join receipts r on r.id = o.id and r.wallet_id = o.wallet_id and r.id > $1
left join receipts d on d.id = c.receipt_id and d.wallet_id = c.wallet_id
left join holds h on h.wallet_id = o.wallet_id and h.operation_id = o.id
left join rounds n on n.wallet_id = o.wallet_id and n.operation_id = o.id
left join late_results l on l.wallet_id = o.wallet_id and l.operation_id = o.id
left join operation_refs f on f.wallet_id = o.wallet_id and f.tool = o.tool and f.reference = o.reference and f.operation_id = o.id
where o.id > $1
    and ($2::text[] is null or o.wallet_id = any($2))
    and ($3::text is null or o.agent_id = $3) and ($4::text is null or o.permit_id = $4)
    and ($5::text is null or $5 = case when r.id is null then 'dispatching' when c.receipt_id is not null then 'reconciled' else 'finished' end)
order by o.id
limit $6
