-- No lock. Index: agents_pkey, agent_wallets_pkey.
select a.id, a.name, coalesce(a.default_wallet_id, ''), coalesce(a.default_permit_id, ''), a.created_at,
    array(select w.wallet_id from agent_wallets w where w.agent_id = a.id order by w.wallet_id)
from agents a
where a.id > $1
order by a.id
limit $2
