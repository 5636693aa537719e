-- No lock. Whether an operation is still with this instance, in this round. Index: holds_pkey.
select exists (select 1 from holds where wallet_id = $1 and operation_id = $2 and instance_id = $3 and round = $4)
