-- No lock. Each permit's counters beside what its receipts and holds say. Of an operation's receipts the
-- latest counts.
select u.wallet_id, u.permit_id, u.credits_limit, u.calls_limit, u.value_limit,
    u.credits_committed, u.calls_total, u.value_committed, u.calls::text,
    (coalesce(s.charged, 0) + coalesce(h.credits, 0))::bigint,
    (coalesce(s.calls, 0) + coalesce(h.calls, 0))::bigint,
    (coalesce(s.value_kept, 0) + coalesce(h.value_amount, 0))::bigint,
    p.token, p.sha256
from permit_usage u
left join (
    select o.wallet_id, o.permit_id, sum(r.charged) as charged, sum(r.calls_kept) as calls, sum(r.value_kept) as value_kept
    from receipts r
    join operations o on o.id = r.operation_id and o.wallet_id = r.wallet_id
    left join reconciliations c on c.wallet_id = r.wallet_id and c.operation_id = r.operation_id
    where r.id = coalesce(c.receipt_id, r.operation_id)
    group by o.wallet_id, o.permit_id
) s on s.wallet_id = u.wallet_id and s.permit_id = u.permit_id
left join (
    select wallet_id, permit_id, sum(credits) as credits, count(*) as calls, sum(value_amount) as value_amount
    from holds group by wallet_id, permit_id
) h on h.wallet_id = u.wallet_id and h.permit_id = u.permit_id
left join permits p on p.id = u.permit_id and p.wallet_id = u.wallet_id
order by u.wallet_id, u.permit_id
