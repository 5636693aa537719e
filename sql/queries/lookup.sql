-- No lock: the replay read, outside of every transaction. The latest receipt counts: the reconciliation's, where
-- there is one. Indexes: operations_pkey, reconciliations_pkey, receipts_id, signatures_pkey, responses_pkey.
select k.n, o.id, o.agent_id, o.permit_id, o.tool, o.key_source, o.request_hash, o.authorized, o.started_ms,
    r.id, r.outcome, r.reason, r.charged, r.ended_ms, r.signing_input, s.signature, p.result, c.resolution
from unnest($1::text[], $2::text[]) with ordinality as k (wallet_id, key, n)
join operations o on o.wallet_id = k.wallet_id and o.key = k.key
left join reconciliations c on c.wallet_id = o.wallet_id and c.operation_id = o.id
left join receipts r on r.id = coalesce(c.receipt_id, o.id) and r.wallet_id = o.wallet_id
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id
left join responses p on p.wallet_id = r.wallet_id and p.receipt_id = r.id
