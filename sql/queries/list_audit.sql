-- No lock. Administrative acts and outcomes of calls (each receipt is one), merged by their time-ordered ids.
-- Index: audit_pkey, receipts_id.
(select a.id, a.at, a.actor, a.action, a.subject, a.detail::text as detail, null::text as signing_input
from audit a where a.id > $1 order by a.id limit $2)
union all
(select r.id, null, null, null, null, null, r.signing_input
from receipts r where r.id > $1 order by r.id limit $2)
order by id
limit $2
