-- Locks chain heads in id order (last of the lock order). Index: chains_pkey.
select wallet_id, seq, head
from chains
where wallet_id = any($1::text[])
order by wallet_id
for update
