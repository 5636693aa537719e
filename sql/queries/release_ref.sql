-- Releases the reference that an operation holds; the wallet is locked. Index: operation_refs_pkey.
delete from operation_refs
where wallet_id = $1 and tool = $2 and reference = $3 and operation_id = $4
returning reference
