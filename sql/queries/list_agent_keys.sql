-- No lock. Index: agent_keys_agent.
select id, agent_id, roles, created_at, expires_at, revoked_at
from agent_keys
where agent_id = any($1::text[])
order by created_at, id
