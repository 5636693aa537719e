-- No lock. Receipts of all wallets, or of those in $2, in order of their time-ordered ids; $3 <= ended < $4.
-- $1 bounds the signatures too, else a merge of both begins with the first there ever was. Index: receipts_id, signatures_pkey.
select r.id, r.wallet_id, r.seq, r.signing_input, s.signature
from receipts r
left join signatures s on s.receipt_id = r.id and s.wallet_id = r.wallet_id and s.receipt_id > $1
where r.id > $1 and ($2::text[] is null or r.wallet_id = any($2)) and r.ended_ms >= $3 and r.ended_ms < $4
order by r.id
limit $5
