-- No lock of its own; run after the wallets are locked. Which of these operation references are in use, and by
-- which operation. Index: operation_refs_pkey.
select f.wallet_id, f.tool, f.reference, f.operation_id
from unnest($1::text[], $2::text[], $3::text[]) as k (wallet_id, tool, reference)
join operation_refs f on f.wallet_id = k.wallet_id and f.tool = k.tool and f.reference = k.reference
