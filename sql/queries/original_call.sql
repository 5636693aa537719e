-- No lock. The call that one operation was made for, if it is of a wallet that may be seen. Index: operations_id.
select wallet_id, key, key_source, agent_id, permit_id, tool, arguments
from operations
where id = $1 and wallet_id = any($2::text[])
