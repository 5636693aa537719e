-- No lock of its own; run after the wallet is locked, so that it sees an earlier deposit of this
-- reference. Index: deposits_pkey.
select transfer_id, credits, balance, available from deposits where wallet_id = $1 and reference = $2
