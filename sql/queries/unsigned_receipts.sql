-- No lock. Receipts of the time-ordered ids after $1 that have no stored signature: what a crash left.
-- Index: receipts_id.
select r.id, r.wallet_id, r.signing_input
from receipts r
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id
where r.id > $1 and s.receipt_id is null
order by r.id
limit $2
