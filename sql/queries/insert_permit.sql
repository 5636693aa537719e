-- Inserts a permit's signed text and its index columns; permits_pkey refuses an id that is taken.
insert into permits (id, wallet_id, agent_id, issuer, token, sha256, not_before, expires_at)
values ($1, $2, $3, $4, $5, $6, to_timestamp($7::bigint), to_timestamp($8::bigint))
