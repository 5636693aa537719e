-- Locks free operation keys, those that were loaded first, and waits for nobody: what others have locked at this
-- moment is passed over. Index: operation_keys_free.
select key
from operation_keys
where uses = 0
order by loaded_at, key
limit $1::bigint
for update skip locked
