-- No lock. Operations that wait for a reconciliation, in order of their time-ordered ids; $2 are the wallets that
-- may be seen, or null for all. The queue is as small as what waits. Index: operations_id, receipts_id, late_results_pkey.
select o.id, o.operation_key, o.wallet_id, o.agent_id, o.permit_id, o.tool, coalesce(r.reason, ''), u.charged, o.value_currency, o.value_amount,
    u.since_ms, l.operation_id is not null, u.probes, u.probe_at
from uncertain u
join operations o on o.id = u.operation_id and o.wallet_id = u.wallet_id
join receipts r on r.id = o.id and r.wallet_id = o.wallet_id
left join late_results l on l.wallet_id = u.wallet_id and l.operation_id = u.operation_id
where u.operation_id > $1 and ($2::text[] is null or u.wallet_id = any($2))
order by u.operation_id
limit $3
