-- Ends an API key; the first time stays. Returns whether it had been in force. Index: agent_keys_pkey.
update agent_keys k
set revoked_at = coalesce(k.revoked_at, now())
from (select id, revoked_at from agent_keys where id = $2 and agent_id = $1 for update) as before
where k.id = before.id
returning before.revoked_at is null
