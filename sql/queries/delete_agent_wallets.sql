-- Takes from a locked agent the wallets that are not in the list. Index: agent_wallets_pkey.
delete from agent_wallets where agent_id = $1 and wallet_id <> all($2::text[])
