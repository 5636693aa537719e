-- Locks wallets in id order (first of the lock order). Index: wallets_pkey.
select id, frozen, deposited, committed
from wallets
where id = any($1::text[])
order by id
for update
