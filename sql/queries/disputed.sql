-- No lock of its own; run after the wallet and its chain head are locked. All that is known of one operation
-- before it is reconciled. Index: operations_id, receipts_id, reconciliations_pkey, late_results_pkey.
select r.signing_input, r.calls_kept, r.value_kept, c.receipt_id, c.resolution, c.evidence, c.provider_reference,
    l.outcome, l.result, l.scrubbed
from operations o
left join receipts r on r.id = o.id and r.wallet_id = o.wallet_id
left join reconciliations c on c.wallet_id = o.wallet_id and c.operation_id = o.id
left join late_results l on l.wallet_id = o.wallet_id and l.operation_id = o.id
where o.id = $1 and o.wallet_id = $2
