-- Frees the references of operations that were not delivered; the wallets are locked. A reference that another
-- operation has taken since stays. Index: operation_refs_pkey.
delete from operation_refs f
using unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) as k (wallet_id, tool, reference, operation_id)
where f.wallet_id = k.wallet_id and f.tool = k.tool and f.reference = k.reference and f.operation_id = k.operation_id
