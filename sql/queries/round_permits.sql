-- No lock. The permits of a wallet's operations that wait for input under this state. Indexes: rounds_state, operations_id.
select distinct o.permit_id
from rounds r
join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
where r.wallet_id = $1 and r.state_sha256 = $2
