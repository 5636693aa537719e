-- No lock. The keys of the next issuers by name. Index: issuers_issuer.
select i.issuer, i.kid, i.public_key, i.status, i.not_before, i.expires, i.created_at
from issuers i
where i.issuer in (select distinct issuer from issuers where issuer > $1 order by issuer limit $2)
order by i.issuer, i.kid
