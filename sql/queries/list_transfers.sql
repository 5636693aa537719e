-- No lock. Index: transfers_pkey.
select id, kind, debit_account, credit_account, amount, created_ms, coalesce(reference, '')
from transfers
where wallet_id = $1 and id > $2
order by id
limit $3
