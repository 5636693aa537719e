-- No lock. The next receipts whose response bodies may go: made before the id $1, and earlier than every call
-- that still runs, so that no body comes behind the mark. An uncertain one keeps its answer. Index: receipts_id.
select r.wallet_id, r.id, r.ended_ms, r.outcome <> 'delivery_uncertain'
from receipts r
where r.id > coalesce((select up_to from pruning where one = 1), '00000000-0000-0000-0000-000000000000'::uuid)
    and r.id < least($1::uuid, coalesce((select operation_id from holds order by operation_id limit 1), $1::uuid))
order by r.id
limit $2
