-- The double entry of a deposit: from outside to the wallet.
insert into transfers (wallet_id, id, kind, debit_account, credit_account, amount, created_ms, reference)
values ($1, $2, 'deposit', 'external', $1, $3, $4, $5)
