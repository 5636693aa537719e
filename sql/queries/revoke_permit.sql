-- Revokes a permit; the first time stays. Locks the usage row, so that no claim is decided meanwhile.
-- Returns whether it had been in force. Index: permits_pkey, permit_usage_pkey.
update permit_usage u
set revoked_at = coalesce(u.revoked_at, now())
from (
    select i.wallet_id, i.permit_id, i.revoked_at
    from permits p
    join permit_usage i on i.wallet_id = p.wallet_id and i.permit_id = p.id
    where p.id = $1
    for update of i
) as before
where u.wallet_id = before.wallet_id and u.permit_id = before.permit_id
returning before.revoked_at is null
