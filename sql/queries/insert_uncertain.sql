-- Puts operations that were settled as uncertain in this transaction into the queue of reconciliations.
insert into uncertain (wallet_id, operation_id, tool, charged, since_ms)
select k.wallet_id, k.operation_id, k.tool, k.charged, k.since_ms
from unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[]) as k (wallet_id, operation_id, tool, charged, since_ms)
