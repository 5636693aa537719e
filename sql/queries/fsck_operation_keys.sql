-- No lock. Operation keys that are marked as used by an operation which does not have them, and operations with a key
-- of the pool that is not marked as theirs: so also the second operation of a key. The keys themselves are not shown.
select coalesce(o.wallet_id, k.wallet_id), coalesce(o.id, k.operation_id), o.id is not null
from operation_keys k
left join operations o on o.operation_key = k.key
where (k.uses = 1 or o.id is not null)
    and (o.id is distinct from k.operation_id or o.wallet_id is distinct from k.wallet_id)
limit 1
