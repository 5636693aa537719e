-- Inserts claims. operations_pkey is the last guard of I1: a second claim of a key fails the batch.
insert into operations (wallet_id, key, id, agent_id, permit_id, tool, tool_sha256, key_source, operation_key,
    request_hash, arguments, authorized, value_currency, value_amount, started_ms)
select k.wallet_id, k.key, k.id, k.agent_id, k.permit_id, k.tool, k.tool_sha256, k.key_source, k.operation_key,
    k.request_hash, k.arguments, k.authorized, k.value_currency, k.value_amount, $15::bigint
from unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[],
    $10::bytea[], $11::bytea[], $12::bigint[], $13::text[], $14::bigint[])
    as k (wallet_id, key, id, agent_id, permit_id, tool, tool_sha256, key_source, operation_key,
    request_hash, arguments, authorized, value_currency, value_amount)
