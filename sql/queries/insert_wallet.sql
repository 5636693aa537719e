-- Inserts a wallet; wallets_pkey refuses an id that is taken.
insert into wallets (id, name) values ($1, $2)
