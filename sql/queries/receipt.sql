-- No lock. One receipt with all that a bundle holds. $2 are the wallets that may be seen, or null for all.
-- The other receipt of the same operation comes with it. Index: receipts_id, signatures_pkey, operations_id,
-- responses_pkey, permits_pkey, reconciliations_pkey.
select r.id, r.wallet_id, r.seq, r.signing_input, s.signature, p.token, o.arguments, b.result,
    coalesce(a.id, d.id), coalesce(a.signing_input, d.signing_input), q.signature
from receipts r
join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
join permits p on p.id = o.permit_id
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id
left join responses b on b.wallet_id = r.wallet_id and b.receipt_id = r.id
left join reconciliations c on c.wallet_id = r.wallet_id and c.operation_id = r.operation_id
left join receipts a on a.id = r.operation_id and a.wallet_id = r.wallet_id and r.id <> r.operation_id
left join receipts d on d.id = c.receipt_id and d.wallet_id = c.wallet_id and r.id = r.operation_id
left join signatures q on q.receipt_id = coalesce(a.id, d.id) and q.wallet_id = r.wallet_id
where r.id = $1 and ($2::text[] is null or r.wallet_id = any($2))
