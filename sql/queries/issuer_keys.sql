-- No lock. The keys of one issuer. Index: issuers_issuer.
select issuer, kid, public_key, status, not_before, expires, created_at
from issuers
where issuer = $1
order by kid
