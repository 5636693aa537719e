-- Adds operation keys to the pool. Those that were ever loaded are passed over, used or not. Index: operation_keys_pkey.
insert into operation_keys (key)
select k.key
from unnest($1::text[]) as k (key)
order by k.key
on conflict do nothing
