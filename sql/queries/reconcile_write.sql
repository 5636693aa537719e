-- A decision about an uncertain operation in one statement: its receipt and response, the reversal of what is
-- given back (from revenue to the wallet), the moved chain head, and the operation's leaving of the queue.
-- reconciliations_pkey is the guard of "at most one reconciliation" (I5).
with c as (
    insert into reconciliations (wallet_id, operation_id, receipt_id, resolution, evidence, provider_reference,
        charged_before, actor, decided_ms)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
), r as (
    insert into receipts (wallet_id, seq, id, operation_id, outcome, reason, charged, calls_kept, value_kept, ended_ms, signing_input)
    values ($1, $10, $3, $2, 'reconciled', nullif($11::text, ''), $12, $13, $14, $9, $15)
), p as (
    insert into responses (wallet_id, receipt_id, result)
    values ($1, $3, $16)
), t as (
    insert into transfers (wallet_id, id, kind, debit_account, credit_account, amount, created_ms)
    select $1, $3, 'reversal', 'revenue', $1, $7::bigint - $12::bigint, $9
    where $7::bigint > $12::bigint
), u as (
    delete from uncertain where wallet_id = $1 and operation_id = $2
)
update chains
set seq = $10, head = $17
where wallet_id = $1
