-- Deletes holds and says which were there: the right to write an operation's outcome. Run after the
-- chain heads are locked. Index: holds_pkey.
delete from holds h
using unnest($1::text[], $2::uuid[]) as k (wallet_id, operation_id)
where h.wallet_id = k.wallet_id and h.operation_id = k.operation_id
returning h.operation_id
