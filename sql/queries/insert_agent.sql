-- Inserts an agent; agents_pkey refuses an id that is taken.
insert into agents (id, name, default_wallet_id, default_permit_id)
values ($1, $2, nullif($3, ''), nullif($4, ''))
