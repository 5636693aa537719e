-- No lock: asked only for operations that were read without an outcome. What their tools have asked for. Index: rounds_pkey.
select k.n, r.number, r.state_sha256, r.result, r.expires_ms
from unnest($1::text[], $2::uuid[]) with ordinality as k (wallet_id, operation_id, n)
join rounds r on r.wallet_id = k.wallet_id and r.operation_id = k.operation_id
