-- No lock. The permits that an agent can use now, by the database's clock; $2 is one id or null for all. Those
-- that end last come first, so that a bound leaves out what ends soonest. Index: permits_agent, permit_usage_pkey.
select p.id, p.token, p.wallet_id, p.agent_id, p.issuer, p.sha256
from permits p
join permit_usage u on u.wallet_id = p.wallet_id and u.permit_id = p.id
where p.agent_id = $1 and ($2::text is null or p.id = $2)
    and u.revoked_at is null and p.not_before <= now() and now() < p.expires_at
order by p.expires_at desc, p.id
limit $3
