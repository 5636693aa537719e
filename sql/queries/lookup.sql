-- No lock: the replay read, outside of every transaction. The latest receipt counts: the reconciliation's, where
-- there is one. Its id is settled first: by an id that is computed in the join, the planner walks the
-- wallet's whole chain. Indexes: operations_pkey, reconciliations_pkey, receipts_id, signatures_pkey, responses_pkey.
with x as materialized (
    select k.n, o.id, o.wallet_id, o.agent_id, o.permit_id, o.tool, o.key_source, o.request_hash, o.authorized, o.started_ms,
        c.resolution, coalesce(c.receipt_id, o.id) as receipt_id
    from unnest($1::text[], $2::text[]) with ordinality as k (wallet_id, key, n)
    join operations o on o.wallet_id = k.wallet_id and o.key = k.key
    left join reconciliations c on c.wallet_id = o.wallet_id and c.operation_id = o.id
)
select x.n, x.id, x.agent_id, x.permit_id, x.tool, x.key_source, x.request_hash, x.authorized, x.started_ms,
    r.id, r.outcome, r.reason, r.charged, r.ended_ms, r.signing_input, s.signature, p.result, p.error, x.resolution
from x
left join receipts r on r.id = x.receipt_id and r.wallet_id = x.wallet_id
left join signatures s on s.receipt_id = x.receipt_id and s.wallet_id = x.wallet_id
left join responses p on p.wallet_id = x.wallet_id and p.receipt_id = x.receipt_id
