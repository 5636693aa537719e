-- Starts the usage of a new permit.
insert into permit_usage (wallet_id, permit_id, credits_limit, calls_limit, value_limit) values ($1, $2, $3, $4, $5)
