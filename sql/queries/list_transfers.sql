-- No lock. A reversal has its receipt's id, which says whose it is. Index: transfers_pkey, receipts_id.
select t.id, t.kind, t.debit_account, t.credit_account, t.amount, t.created_ms, coalesce(t.reference, ''),
    case t.kind when 'charge' then t.id when 'reversal' then r.operation_id end
from transfers t
left join receipts r on t.kind = 'reversal' and r.id = t.id and r.wallet_id = t.wallet_id
where t.wallet_id = $1 and t.id > $2
order by t.id
limit $3
