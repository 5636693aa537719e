-- Inserts the transfers of charges: from the wallet to revenue.
insert into transfers (wallet_id, id, kind, debit_account, credit_account, amount, created_ms)
select k.wallet_id, k.id, 'charge', k.wallet_id, 'revenue', k.amount, $4::bigint
from unnest($1::text[], $2::uuid[], $3::bigint[]) as k (wallet_id, id, amount)
