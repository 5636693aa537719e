-- Removes response bodies. Receipts, hashes and keys stay for ever. Index: responses_pkey.
delete from responses p
using unnest($1::text[], $2::uuid[]) as k (wallet_id, receipt_id)
where p.wallet_id = k.wallet_id and p.receipt_id = k.receipt_id
