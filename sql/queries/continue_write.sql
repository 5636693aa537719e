-- Gives locked, parked holds to an instance and takes their rounds away: whoever does has the right, and the duty, to go
-- on. Indexes: holds_pkey, rounds_pkey.
with h as (
    update holds h
    set instance_id = $4::uuid
    from unnest($1::text[], $2::uuid[], $3::bigint[]) as k (wallet_id, operation_id, number)
    where h.wallet_id = k.wallet_id and h.operation_id = k.operation_id and h.round = k.number
        and h.instance_id = '00000000-0000-0000-0000-000000000000'
    returning h.wallet_id, h.operation_id, h.round
)
delete from rounds r
using h
where r.wallet_id = h.wallet_id and r.operation_id = h.operation_id and r.number = h.round
