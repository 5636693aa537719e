-- No lock. Everything a wallet statement says of the receipts $2 to $3, from one snapshot; $4 is "up to the
-- newest receipt and deposit". Index: receipts_pkey, chains_pkey, transfers_pkey.
with bounds as (
    select w.id, c.seq as newest,
        case when $4::boolean then c.seq else least($3::bigint, c.seq) end as last,
        case when $2::bigint > 1
            then (select r.ended_ms from receipts r where r.wallet_id = w.id and r.seq = $2::bigint - 1)
            else 0 end as opened_ms,
        case when $4::boolean
            then (extract(epoch from now()) * 1000)::bigint
            else (select r.ended_ms from receipts r where r.wallet_id = w.id and r.seq = $3::bigint) end as closed_ms
    from wallets w
    join chains c on c.wallet_id = w.id
    where w.id = $1
), folded as (
    -- A reconciliation says the final total: it counts with its difference to what was charged before.
    select coalesce(sum(r.charged - coalesce(c.charged_before, 0)) filter (where r.seq < $2::bigint), 0)::bigint as charged_before,
        coalesce(sum(r.charged - coalesce(c.charged_before, 0)) filter (where r.seq >= $2::bigint), 0)::bigint as charged,
        count(*) filter (where r.seq >= $2::bigint and r.outcome = 'succeeded') as succeeded,
        count(*) filter (where r.seq >= $2::bigint and r.outcome = 'denied') as denied,
        count(*) filter (where r.seq >= $2::bigint and r.outcome = 'failed') as failed,
        count(*) filter (where r.seq >= $2::bigint and r.outcome = 'delivery_uncertain') as uncertain,
        count(*) filter (where r.seq >= $2::bigint and r.outcome = 'reconciled') as reconciled
    from bounds b
    join receipts r on r.wallet_id = b.id and r.seq <= b.last
    left join reconciliations c on c.wallet_id = r.wallet_id and c.operation_id = r.operation_id and c.receipt_id = r.id
), deposited as (
    select coalesce(sum(t.amount) filter (where t.created_ms <= b.opened_ms), 0)::bigint as before,
        coalesce(sum(t.amount) filter (where t.created_ms > b.opened_ms and (t.created_ms <= b.closed_ms or $4::boolean)), 0)::bigint as within
    from bounds b
    join transfers t on t.wallet_id = b.id and t.kind = 'deposit'
)
select (extract(epoch from now()) * 1000)::bigint, b.newest, b.last, coalesce(b.opened_ms, 0), coalesce(b.closed_ms, 0), f.charged_before, f.charged,
    f.succeeded, f.denied, f.failed, f.uncertain, f.reconciled, d.before, d.within,
    coalesce((select r.signing_input from receipts r where r.wallet_id = b.id and r.seq = b.last), '')
from bounds b, folded f, deposited d
