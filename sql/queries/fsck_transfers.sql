-- No lock. Transfers that are not between the two accounts of their kind, or of no wallet, or of no
-- receipt or deposit that names them.
select t.wallet_id, t.id, t.kind
from transfers t
left join wallets w on w.id = t.wallet_id
left join receipts r on r.id = t.id and r.wallet_id = t.wallet_id
left join reconciliations c on c.receipt_id = t.id and c.wallet_id = t.wallet_id
left join deposits d on d.transfer_id = t.id and d.wallet_id = t.wallet_id and d.credits = t.amount
where w.id is null
    or (t.kind = 'deposit' and (t.debit_account <> 'external' or t.credit_account <> t.wallet_id or d.transfer_id is null))
    or (t.kind = 'charge' and (t.debit_account <> t.wallet_id or t.credit_account <> 'revenue' or r.id is null or r.outcome = 'reconciled'
        or r.charged <> t.amount))
    or (t.kind = 'reversal' and (t.debit_account <> 'revenue' or t.credit_account <> t.wallet_id or r.id is null or c.receipt_id is null
        or c.charged_before - r.charged <> t.amount))
order by t.wallet_id, t.id
limit 1
