-- No lock. Whether more operation keys are free than the $1 that this transaction has locked: then others have locked
-- the rest, and need not use them. Index: operation_keys_free.
select count(*) > $1::bigint
from (select from operation_keys where uses = 0 limit $1::bigint + 1) as k
