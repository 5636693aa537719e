-- No lock. Every receipt in chain order with its operation, transfer, response, signature and, where it is one,
-- the reconciliation that it records. A response may be missing only up to the mark of pruning.
select r.wallet_id, r.seq, r.id, r.operation_id, r.outcome, coalesce(r.reason, ''), r.charged, r.calls_kept, r.value_kept,
    r.ended_ms, r.signing_input, s.signature, p.result,
    t.amount, o.id is not null, o.agent_id, o.permit_id, o.tool, encode(o.tool_sha256, 'hex'), o.key_source,
    encode(o.request_hash, 'hex'), o.arguments, o.authorized, o.started_ms, o.value_currency, o.value_amount,
    c.resolution, c.evidence, c.provider_reference, c.charged_before,
    r.id <= coalesce((select up_to from pruning where one = 1), '00000000-0000-0000-0000-000000000000'::uuid)
from receipts r
left join reconciliations c on c.wallet_id = r.wallet_id and c.receipt_id = r.id and c.operation_id = r.operation_id
left join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
left join transfers t on t.id = r.id and t.wallet_id = r.wallet_id
left join responses p on p.receipt_id = r.id and p.wallet_id = r.wallet_id
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id
order by r.wallet_id, r.seq
