-- Adds credits to a locked wallet; no row when the sum would pass 2^53-1. Index: wallets_pkey.
update wallets
set deposited = deposited + $2::bigint
where id = $1 and 9007199254740991 - deposited >= $2::bigint
returning id
