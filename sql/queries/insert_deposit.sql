-- Keeps the first answer to a reference; deposits_pkey refuses a second.
insert into deposits (wallet_id, reference, transfer_id, credits, balance, available) values ($1, $2, $3, $4, $5, $6)
