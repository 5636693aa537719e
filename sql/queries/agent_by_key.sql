-- No lock. The agent of an API key that is neither deleted nor expired, by the database's clock.
-- Index: agent_keys_sha256_key, agents_pkey, agent_wallets_pkey.
select a.id, a.name, coalesce(a.default_wallet_id, ''), coalesce(a.default_permit_id, ''), a.created_at,
    array(select w.wallet_id from agent_wallets w where w.agent_id = a.id order by w.wallet_id),
    k.roles, k.sha256
from agent_keys k
join agents a on a.id = k.agent_id
where k.sha256 = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
