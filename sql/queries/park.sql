-- Parks the holds of operations whose tool has asked for input, and writes down what was asked. Run after the chain
-- heads are locked, as settling is. A hold is parked only while it is still this instance's and in the round before:
-- what a takeover has settled, or somebody else goes on with, has no round of ours. Index: holds_pkey.
with k as (
    select *
    from unnest($1::text[], $2::uuid[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bigint[])
        as k (wallet_id, operation_id, number, state_sha256, result, ttl_ms)
), h as (
    update holds h
    set instance_id = '00000000-0000-0000-0000-000000000000', round = k.number
    from k
    where h.wallet_id = k.wallet_id and h.operation_id = k.operation_id
        and h.instance_id = $7::uuid and h.round = k.number - 1
    returning h.wallet_id, h.operation_id, h.round
), c as materialized (
    select (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms
)
insert into rounds (wallet_id, operation_id, number, state_sha256, result, asked_ms, expires_ms)
select k.wallet_id, k.operation_id, k.number, k.state_sha256, k.result, c.now_ms, c.now_ms + k.ttl_ms
from h
join k on k.wallet_id = h.wallet_id and k.operation_id = h.operation_id and k.number = h.round
cross join c
returning operation_id, number, expires_ms
