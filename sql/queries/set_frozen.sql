-- Freezes or unfreezes a locked wallet; no row when it is so already. Index: wallets_pkey.
update wallets set frozen = $2 where id = $1 and frozen <> $2 returning id
