-- No lock; wallets are never deleted. Which of these wallets do not exist. Index: wallets_pkey.
select k.id
from unnest($1::text[]) as k (id)
left join wallets w on w.id = k.id
where w.id is null
order by k.id
limit 1
