-- Starts the receipt chain of a new wallet.
insert into chains (wallet_id) values ($1)
