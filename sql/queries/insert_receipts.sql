-- Inserts receipts. receipts_id is the last guard of I5, receipts_pkey of I11.
insert into receipts (wallet_id, seq, id, operation_id, outcome, reason, charged, calls_kept, value_kept, ended_ms, signing_input)
select k.wallet_id, k.seq, k.id, k.operation_id, k.outcome, nullif(k.reason, ''), k.charged, k.calls_kept, k.value_kept,
    k.ended_ms, k.signing_input
from unnest($1::text[], $2::bigint[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::bigint[], $8::smallint[],
    $9::bigint[], $10::bigint[], $11::text[])
    as k (wallet_id, seq, id, operation_id, outcome, reason, charged, calls_kept, value_kept, ended_ms, signing_input)
