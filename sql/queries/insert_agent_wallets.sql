-- Lets an agent use wallets.
insert into agent_wallets (agent_id, wallet_id)
select $1, k.wallet_id from unnest($2::text[]) as k (wallet_id)
on conflict do nothing
