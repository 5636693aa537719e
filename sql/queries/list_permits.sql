-- No lock. Permits with their usage and open holds from one snapshot; $1 is one id or null, $3 and $4 filter
-- by wallet and agent. Index: permits_pkey, permit_usage_pkey, holds_pkey.
select p.id, p.wallet_id, p.agent_id, p.issuer, p.token, p.created_at,
    u.credits_committed, u.calls_total, u.calls::text, u.value_committed, u.revoked_at,
    coalesce(h.credits, 0)::bigint, coalesce(h.value_amount, 0)::bigint,
    case when u.revoked_at is not null then 'revoked' when now() < p.not_before then 'not_yet_valid'
        when now() >= p.expires_at then 'expired' else 'active' end
from permits p
join permit_usage u on u.wallet_id = p.wallet_id and u.permit_id = p.id
left join lateral (
    select sum(credits) as credits, sum(value_amount) as value_amount
    from holds where wallet_id = p.wallet_id and permit_id = p.id
) h on true
where ($1::text is null or p.id = $1) and p.id > $2
    and ($3::text is null or p.wallet_id = $3) and ($4::text is null or p.agent_id = $4)
order by p.id
limit $5
