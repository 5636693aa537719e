-- What is uncertain already waits too.
insert into uncertain (wallet_id, operation_id, tool, charged, since_ms)
select r.wallet_id, r.operation_id, o.tool, r.charged, r.ended_ms
from receipts r
join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
where r.outcome = 'delivery_uncertain';
