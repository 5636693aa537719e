-- No lock. Whose operation this is, and what was claimed; none of it ever changes. Index: operations_id.
select wallet_id, permit_id, tool, coalesce(reference, '')
from operations
where id = $1
