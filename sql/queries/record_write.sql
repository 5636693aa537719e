-- Receipts, their responses, their charges (from the wallet to revenue) and the moved chain heads, in one
-- statement. receipts_id is the last guard of I5, receipts_pkey of I11.
with r as (
    insert into receipts (wallet_id, seq, id, operation_id, outcome, reason, charged, calls_kept, value_kept, ended_ms, signing_input)
    select k.wallet_id, k.seq, k.id, k.id, k.outcome, nullif(k.reason, ''), k.charged, k.calls_kept, k.value_kept,
        k.ended_ms, k.signing_input
    from unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::smallint[],
        $8::bigint[], $9::bigint[], $10::text[])
        as k (wallet_id, seq, id, outcome, reason, charged, calls_kept, value_kept, ended_ms, signing_input)
), p as (
    insert into responses (wallet_id, receipt_id, result, error)
    select k.wallet_id, k.receipt_id, k.result, k.error
    from unnest($1::text[], $3::uuid[], $11::bytea[], $15::bytea[]) as k (wallet_id, receipt_id, result, error)
), t as (
    insert into transfers (wallet_id, id, kind, debit_account, credit_account, amount, created_ms)
    select k.wallet_id, k.id, 'charge', k.wallet_id, 'revenue', k.amount, k.created_ms
    from unnest($1::text[], $3::uuid[], $6::bigint[], $9::bigint[]) as k (wallet_id, id, amount, created_ms)
    where k.amount > 0
)
update chains c
set seq = k.seq, head = k.head
from unnest($12::text[], $13::bigint[], $14::text[]) as k (wallet_id, seq, head)
where c.wallet_id = k.wallet_id
