-- Locks chain heads in id order (last of the lock order), then deletes the holds and says which were there:
-- the right to write an operation's outcome. A hold that is another instance's by now, or in another round, stays.
-- The count makes the delete wait for the locks. A head comes without an operation, a deleted hold without a
-- head. Indexes: chains_pkey, holds_pkey.
with c as materialized (
    select wallet_id, seq, head
    from chains
    where wallet_id = any($1::text[])
    order by wallet_id
    for update
), h as (
    delete from holds h
    using unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[]) as k (wallet_id, operation_id, instance_id, round)
    where h.wallet_id = k.wallet_id and h.operation_id = k.operation_id
        and h.instance_id = k.instance_id and h.round = k.round and (select count(*) from c) > 0
    returning h.operation_id
)
select (extract(epoch from clock_timestamp()) * 1000)::bigint, c.wallet_id, c.seq, c.head, null::uuid
from c
union all
select (extract(epoch from clock_timestamp()) * 1000)::bigint, null, null, null, h.operation_id
from h
