-- Keeps what an upstream answered after its operation was settled by a takeover; the first one stays.
insert into late_results (wallet_id, operation_id, outcome, reason, result, scrubbed)
select k.wallet_id, k.operation_id, k.outcome, nullif(k.reason, ''), k.result, k.scrubbed
from unnest($1::text[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::boolean[])
    as k (wallet_id, operation_id, outcome, reason, result, scrubbed)
on conflict do nothing
