-- No lock of its own; run after the wallets are locked, so that it sees every claim of an earlier holder of
-- those locks. The database's time, and which of these keys are used. Index: operations_pkey.
select c.now_ms, o.wallet_id, o.key
from (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms) as c
left join (
    select o.wallet_id, o.key
    from unnest($1::text[], $2::text[]) as k (wallet_id, key)
    join operations o on o.wallet_id = k.wallet_id and o.key = k.key
) as o on true
