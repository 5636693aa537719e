-- No lock. One wallet's receipts in the order of its chain, after the receipt $2. Index: receipts_pkey, receipts_id.
select r.id, r.wallet_id, r.seq, r.signing_input, s.signature
from receipts r
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id
where r.wallet_id = $1 and r.ended_ms >= $3 and r.ended_ms < $4
    and r.seq > coalesce((select a.seq from receipts a where a.id = $2 and a.wallet_id = $1), 0)
order by r.seq
limit $5
