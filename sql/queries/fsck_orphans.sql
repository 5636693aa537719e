-- No lock. Rows of an operation or receipt that does not exist.
select 'holds', h.wallet_id, h.operation_id from holds h
left join operations o on o.id = h.operation_id and o.wallet_id = h.wallet_id where o.id is null
union all
select 'rounds', n.wallet_id, n.operation_id from rounds n
left join operations o on o.id = n.operation_id and o.wallet_id = n.wallet_id where o.id is null
union all
select 'responses', p.wallet_id, p.receipt_id from responses p
left join receipts r on r.id = p.receipt_id and r.wallet_id = p.wallet_id where r.id is null
union all
select 'signatures', s.wallet_id, s.receipt_id from signatures s
left join receipts r on r.id = s.receipt_id and r.wallet_id = s.wallet_id where r.id is null
union all
select 'late_results', l.wallet_id, l.operation_id from late_results l
left join receipts r on r.id = l.operation_id and r.wallet_id = l.wallet_id where r.id is null
limit 1
