-- Registers an outside issuer's key or changes its state. No row when the key is another issuer's, or
-- was revoked and would come back. Index: issuers_pkey.
insert into issuers (kid, issuer, public_key, status, not_before, expires)
values ($1, $2, $3, $4, $5, $6)
on conflict (kid) do update
set status = excluded.status, not_before = excluded.not_before, expires = excluded.expires
where issuers.issuer = excluded.issuer and (issuers.status <> 'revoked' or excluded.status = 'revoked')
returning kid
