-- No lock. Whether an operation is still dispatching. Index: holds_pkey.
select exists (select 1 from holds where wallet_id = $1 and operation_id = $2)
