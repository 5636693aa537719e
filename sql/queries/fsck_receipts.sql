-- No lock. Every receipt in chain order with its operation, charge, response and signature.
select r.wallet_id, r.seq, r.id, r.operation_id, r.outcome, coalesce(r.reason, ''), r.charged, r.calls_kept, r.value_kept,
    r.ended_ms, r.signing_input, s.signature, p.result,
    t.amount, o.id is not null, o.agent_id, o.permit_id, o.tool, encode(o.tool_sha256, 'hex'), o.key_source,
    encode(o.request_hash, 'hex'), o.arguments, o.authorized, o.started_ms, o.value_currency, o.value_amount
from receipts r
left join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
left join transfers t on t.id = r.id and t.wallet_id = r.wallet_id
left join responses p on p.receipt_id = r.id and p.wallet_id = r.wallet_id
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id
order by r.wallet_id, r.seq
