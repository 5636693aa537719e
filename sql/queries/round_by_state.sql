-- No lock. The key of the newest operation of a wallet that waits for input under this state and is one of these requests.
-- Indexes: rounds_state, operations_id.
select o.key
from rounds r
join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
where r.wallet_id = $1 and r.state_sha256 = $2 and o.request_hash = any($3::bytea[])
order by o.id desc
limit 1
